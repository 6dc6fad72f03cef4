//! One test program for what needs no process of its own, so that it is linked once.

mod days;
mod findings;
mod history;
mod layering;
mod memory;
mod podman;
mod reset;
mod simulation;
mod top;
mod watch;
