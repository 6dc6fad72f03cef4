//! The view without a terminal: how events change it, whatever the machine shows.

mod actions;
mod ending;
mod fixture;
mod hostile;
mod random;
mod tree;
