//! The library as C programs use it: loaded from its file, called through the declarations that
//! bindgen generates from the public header.

mod children;
mod devices;
mod events;
mod external_processes;
mod faults;
mod fixture;
mod initialisation;
mod lists;
mod mig;
mod placeholders;
mod values;
