//! The box that covers the table.

/// The box that covers the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys.
    Help,
    /// The details of the selected row.
    Details,
    /// The environment of a process.
    Environment,
    /// The leases and waiting claims.
    Leases,
    /// The dialog that ends processes.
    Ending,
}
