//! The screen of `gpuws top`: its screens of simulated machines, also as pictures, the terminal
//! after a panic, and the findings of a replay.

mod panic;
mod pictures;
mod replayed;
mod screens;
mod svg;
