//! The view without a terminal: how events change it, whatever the machine shows.

mod actions;
mod ending;
mod fixture;
mod hostile;
mod inquiry;
mod random;
mod replay;
mod tree;
