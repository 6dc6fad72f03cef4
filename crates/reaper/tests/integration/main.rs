//! One test program for the whole crate, so that it is linked once.

mod act;
mod detectors;
mod fixture;
mod plan;
mod tree;
