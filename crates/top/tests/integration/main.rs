//! The view without a terminal: how events change it, whatever the machine shows.

mod actions;
mod derived;
mod ending;
mod fixture;
mod hostile;
mod inquiry;
mod pages;
mod random;
mod replay;
mod screens;
mod terminal;
mod tree;
