//! Leases on devices, and who is next.
