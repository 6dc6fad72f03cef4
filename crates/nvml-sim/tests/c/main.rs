//! The library as C programs use it: loaded by its file, called through the declarations that
//! bindgen makes of the public header.

mod children;
mod devices;
mod events;
mod faults;
mod initialisation;
mod lists;
mod mig;
mod stage;
mod stand_ins;
mod walk_ons;
