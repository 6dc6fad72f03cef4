//! Empty: Cargo requires a library target for the tests, which are named in `Cargo.toml`.
