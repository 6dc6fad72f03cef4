//! The screen of `gpuws top`: what it shows of simulated machines, also as pictures, what is left of
//! it after a panic, and what a replay proves.

mod panic;
mod pictures;
mod replayed;
mod screens;
mod svg;
