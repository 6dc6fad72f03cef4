//! One test program for the whole crate, so that it is linked once.

mod fixture;
mod forms;
mod words;
