//! An entry whose id others have seen.

use gpu_core::{Entry, EntryKind, ErrorKind, Held, Locks, Result};

/// Publishes an entry whose id others have seen: anybody can have taken its name by that. Then it
/// gets another id, which nobody knows before it is published. What was taken out of a lease by its
/// old id counts alone from then on.
///
/// # Errors
/// Those of [`Locks::publish`]; the entry keeps its id then.
pub fn publish_known(
    locks: &dyn Locks,
    kind: EntryKind,
    entry: &mut Entry,
) -> Result<Box<dyn Held>> {
    match locks.publish(kind, entry) {
        // No kind tells a name that is taken from a full disk. As long as that is full, the second
        // attempt fails too, and the entry keeps its id.
        Err(error) if error.kind() == ErrorKind::Io => {
            let other = Entry { id: locks.new_id()?, ..entry.clone() };
            let held = locks.publish(kind, &other)?;
            *entry = other;
            Ok(held)
        }
        published => published,
    }
}
