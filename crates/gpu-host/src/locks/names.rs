//! The names of the files in a user's directory, and in its queue directory.

use gpu_core::{EntryKind, LeaseId, QueuePlace};

/// A file that is being written; no reader uses this name.
pub(super) const NEW: &str = "new-";
/// An attempt.
pub(super) const TRY: &str = "try-";
/// A lease.
pub(super) const LEASE: &str = "lease-";
/// The file that a job inherits, next to the lease of the same ID.
pub(super) const KEPT: &str = "kept-";
/// The record of an ended lease.
pub(super) const PAST: &str = "past-";
/// The directory of places in the queue: only readers of the queue list it, however long it is.
pub(super) const QUEUE: &str = "queue";
/// A place in the queue.
pub(super) const PLACE: &str = "place-";
/// The FIFO of a place in the queue, which hangs up when its claim leaves.
pub(super) const WAIT: &str = "wait-";

/// The prefix of the IDs of merged leases; no file has such an ID.
pub(super) const MERGED: &str = "more-";

/// The name prefix of files of a kind.
pub(super) fn file_prefix(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Attempt => TRY,
        EntryKind::Lease => LEASE,
        EntryKind::Waiter => PLACE,
    }
}

/// Returns the name of a place in the queue after [`PLACE`]. It contains everything that determines
/// the order, so a listing gives the order without opening a file.
pub(super) fn of_place(place: &QueuePlace) -> String {
    format!("{:016x}-{:016x}-{}", place.ticket, place.class, place.id)
}

/// Returns the place with this name, after [`PLACE`].
pub(super) fn place(owner: u32, name: &str) -> Option<QueuePlace> {
    let (ticket, rest) = name.split_at_checked(16)?;
    let (class, id) = rest.strip_prefix('-')?.split_at_checked(16)?;
    let hex = |text: &str| {
        let is_lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.bytes().all(is_lower).then(|| u64::from_str_radix(text, 16).ok())?
    };
    let id = LeaseId::parse(id.strip_prefix('-')?)?;
    Some(QueuePlace { ticket: hex(ticket)?, id, owner, class: hex(class)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_file_name_encodes_ticket_class_and_id() {
        let id = LeaseId::parse("a-1").unwrap();
        for (ticket, class) in [(0, 0), (7, u64::MAX), (u64::MAX, 1)] {
            let reported = QueuePlace { ticket, id: id.clone(), owner: 5, class };
            assert_eq!(place(5, &of_place(&reported)), Some(reported));
        }
        let digits = "0123456789abcdef";
        for name in ["", "-", digits, &format!("{digits}-{digits}"), "é"] {
            assert_eq!(place(5, name), None, "{name}");
        }
        for name in [
            format!("{}-{digits}-a", digits.to_uppercase()),
            format!("+{}-{digits}-a", &digits[1..]),
            format!("{digits}-{digits}-../x"),
            format!("{digits}_{digits}-a"),
        ] {
            assert_eq!(place(5, &name), None, "{name}");
        }
    }
}
