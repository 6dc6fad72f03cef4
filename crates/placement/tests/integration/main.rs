//! One test program for the whole crate, so that it is linked once.

mod exhaustive;
mod fixture;
mod large;
mod machines;
mod offers;
mod pictures;
