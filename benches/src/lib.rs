//! Empty: Cargo requires a library target for the benches, which are named in `Cargo.toml`.
