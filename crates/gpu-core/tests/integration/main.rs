//! One test program for the whole crate, so that it is linked once.

mod fixture;
mod json;
mod memory_figures;
mod names;
mod observe;
mod observer;
mod plain_data;
mod ports;
mod query;
mod words;
