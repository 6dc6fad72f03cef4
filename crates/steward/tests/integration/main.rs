//! One test program for the whole crate, so that it is linked once.

mod cdi;
mod fake;
mod isolated;
mod narrowed;
mod offers;
mod release;
mod run;
mod take;
mod visible;
