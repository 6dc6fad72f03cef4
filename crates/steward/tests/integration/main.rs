//! One test program for the whole crate, so that it is linked once.

mod fake;
mod isolated;
mod offers;
mod run;
mod take;
