//! Uses the library as a C program does: loads it from its file and calls it through the
//! declarations that bindgen generates from the public header.

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
