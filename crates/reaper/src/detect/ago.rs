//! The age of a message at the time of the snapshot.

use gpu_core::{DriverMessage, Origin, Snapshot, Timestamp};

/// Formats a time as ` 2 h ago`. Pasted text may be old, so it gets a date instead.
pub(super) fn when(now: &Snapshot, at: Timestamp) -> String {
    if at == DriverMessage::UNDATED {
        return " at an unknown time".to_owned();
    }
    if now.origin == Origin::Pasted {
        let date = at.to_string();
        let date = date.get(..16).map(|date| date.replace('T', " ")).unwrap_or(date);
        // The messages are in order of time, and the zone of one is known for all.
        let last = now.driver_messages.as_ref().ok().and_then(|messages| messages.last());
        let zone =
            if last.is_some_and(|message| message.is_local) { "local time there" } else { "UTC" };
        return format!(" on {date} {zone}");
    }
    let seconds = now.taken_at.since(at).as_secs();
    match seconds {
        0..120 => format!(" {seconds} s ago"),
        120..7_200 => format!(" {} min ago", seconds / 60),
        _ => format!(" {} h ago", seconds / 3600),
    }
}
