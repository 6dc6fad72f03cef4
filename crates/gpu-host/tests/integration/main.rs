//! One test program for what needs no process of its own, so that it is linked once.

mod fake_proc;
mod output;
