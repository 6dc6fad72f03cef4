//! One test program for the whole crate, so that it is linked once.

mod kfd;
