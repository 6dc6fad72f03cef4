//! How the programs of one vendor see its devices.

/// The variable that lists the devices for the programs of one vendor, and what these programs see.
/// Its [`Grammar`](crate::visible::Grammar) reads and writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visibility {
    /// The vendor of the devices, such as `amd`, by which a claim chooses; empty for devices that no
    /// variable lists.
    pub vendor: &'static str,
    /// The variable.
    pub variable: &'static str,
    /// The variable that sets the order of the devices, and its value for the order of PCI
    /// addresses; `None` if programs always count in that order.
    pub order: Option<(&'static str, &'static str)>,
    /// A program that sees a partition sees no other device, not even another partition. A program
    /// that is given a divided device sees only one of its partitions.
    pub isolates_partitions: bool,
}

/// How programs see a device that no variable lists: always, and no claim can grant it alone.
pub const UNLISTED: Visibility =
    Visibility { vendor: "", variable: "", order: None, isolates_partitions: false };
