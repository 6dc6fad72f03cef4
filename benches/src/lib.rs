//! Empty: Cargo requires a library target beside the benches, which are named in `Cargo.toml`.
