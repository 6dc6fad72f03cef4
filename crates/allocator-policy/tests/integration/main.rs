//! One test program for the whole crate, so that it is linked once.

mod bfc;
mod caching;
mod documented;
mod fixture;
mod plain;
