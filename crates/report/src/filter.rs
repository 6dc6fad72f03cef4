//! The filter of the processes in a view.

use gpu_core::{Pid, Snapshot};
use std::borrow::Cow;

/// Selects processes by their owner and PID. All conditions must hold; the default selects all.
///
/// A process with an unknown owner is not selected by owner. Devices are always shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFilter {
    /// Names or UIDs of the owners, one of which must match; empty for any owner.
    pub users: Vec<String>,
    /// The UID of the owner.
    pub uid: Option<u32>,
    /// The PIDs, one of which must match; empty for any.
    pub pids: Vec<Pid>,
}

impl ProcessFilter {
    /// Returns whether every process is selected.
    pub fn is_empty(&self) -> bool {
        *self == ProcessFilter::default()
    }

    /// Returns whether a process is selected.
    pub fn shows(&self, snapshot: &Snapshot, pid: Pid) -> bool {
        let info = snapshot.process(pid).ok();
        let is_of = |user: &String| info.is_some_and(|info| info.is_of(user));
        (self.pids.is_empty() || self.pids.contains(&pid))
            && (self.uid.is_none() || info.and_then(|info| info.uid.ok()) == self.uid)
            && (self.users.is_empty() || self.users.iter().any(is_of))
    }

    /// Returns the first of the users that owns no process of the snapshot.
    pub fn absent_user(&self, snapshot: &Snapshot) -> Option<&str> {
        let mut users = self.users.iter().map(String::as_str);
        let everyone = || snapshot.processes.keys().filter_map(|pid| snapshot.process(*pid).ok());
        users.find(|user| !everyone().any(|info| info.is_of(user)))
    }

    /// Returns the snapshot without the processes that are left out, for a list of all its values.
    /// Memory that they use would be unexplained in it.
    pub fn applied_to<'a>(&self, snapshot: &'a Snapshot) -> Cow<'a, Snapshot> {
        if self.is_empty() {
            return Cow::Borrowed(snapshot);
        }
        let mut filtered = snapshot.clone();
        let lists = filtered.devices.iter_mut().filter_map(|device| device.processes.as_mut().ok());
        lists.for_each(|list| list.retain(|process| self.shows(snapshot, process.pid)));
        if let Ok(holders) = &mut filtered.holders {
            holders.retain(|holder| self.shows(snapshot, holder.process.pid));
        }
        Cow::Owned(filtered)
    }

    /// Formats `only processes of alice; 2 rows left out`.
    pub fn describe(&self, left_out: usize) -> String {
        let mut conditions = Vec::new();
        if !self.users.is_empty() {
            conditions.push(format!("of {}", self.users.join(" or ")));
        }
        if !self.pids.is_empty() {
            let pids: Vec<String> = self.pids.iter().map(ToString::to_string).collect();
            conditions.push(format!("with PID {}", pids.join(" or ")));
        }
        let rows = crate::wording::count(left_out, "row", "rows");
        let mut which = if self.uid.is_some() { "your processes" } else { "processes" }.to_owned();
        for condition in conditions {
            which.push(' ');
            which.push_str(&condition);
        }
        format!("only {which}; {rows} left out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Origin, Process, ProcessInfo, Timestamp};

    fn snapshot() -> Snapshot {
        let process = |pid: u32, uid: u32, user: &str| {
            let info = ProcessInfo::from_name(Pid(pid), "python");
            let info = ProcessInfo { uid: Ok(uid), user: Ok(user.to_owned()), ..info };
            (Pid(pid), Process::from(Ok(info)))
        };
        let unnamed = ProcessInfo::from_name(Pid(9), "python");
        let mut snapshot = Snapshot::empty(Origin::Pasted, Timestamp(0));
        snapshot.processes = [process(7, 1000, "alice"), process(8, 1001, "1000")].into();
        snapshot.processes.insert(Pid(9), Process::from(Ok(unnamed)));
        snapshot
    }

    #[test]
    fn conditions_are_combined_and_unknown_owner_matches_none() {
        let users = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let all = ProcessFilter::default();
        let of = |names: &[&str]| ProcessFilter { users: users(names), ..all.clone() };
        for (filter, shown) in [
            (all.clone(), &[7, 8, 9, 10][..]),
            (of(&["alice"]), &[7]),
            (of(&["1000"]), &[7, 8]),
            (of(&["1001", "alice"]), &[7, 8]),
            (of(&["carol"]), &[]),
            (ProcessFilter { uid: Some(1001), ..all.clone() }, &[8]),
            (ProcessFilter { uid: Some(1001), ..of(&["alice"]) }, &[]),
            (ProcessFilter { pids: vec![Pid(9), Pid(10)], ..all.clone() }, &[9, 10]),
            (ProcessFilter { pids: vec![Pid(7), Pid(9)], ..of(&["alice"]) }, &[7]),
        ] {
            let snapshot = snapshot();
            let pids = (7..=10).filter(|pid| filter.shows(&snapshot, Pid(*pid)));
            assert_eq!(pids.collect::<Vec<_>>(), shown, "{filter:?}");
            assert_eq!(filter.is_empty(), shown.len() == 4);
        }
    }

    #[test]
    fn user_without_process_is_absent() {
        let of = |users: &[&str]| ProcessFilter {
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            ..ProcessFilter::default()
        };
        assert_eq!(of(&[]).absent_user(&snapshot()), None);
        assert_eq!(of(&["alice", "1001"]).absent_user(&snapshot()), None);
        assert_eq!(of(&["alice", "carol", "dave"]).absent_user(&snapshot()), Some("carol"));
    }

    #[test]
    fn conditions_are_described() {
        let filter = ProcessFilter {
            users: vec!["alice".into(), "bob".into()],
            uid: Some(7),
            pids: vec![Pid(3), Pid(4)],
        };
        assert_eq!(
            filter.describe(2),
            "only your processes of alice or bob with PID 3 or 4; 2 rows left out"
        );
    }
}
