//! The default methods of the ports.

use crate::fixture::*;
use gpu_core::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An adapter with only the required methods.
struct Plain;

impl Job for Plain {
    fn next(&mut self, _: Duration) -> Result<Option<JobEvent>> {
        Ok(None)
    }

    fn pass(&self, _: i32) -> Result<()> {
        Ok(())
    }

    fn members(&self) -> Result<Vec<ProcessInfo>> {
        Ok(vec![])
    }
}

impl Launcher for Plain {
    fn launch(&self, _: &Launch) -> Result<Box<dyn Job>> {
        Ok(Box::new(Plain))
    }
}

impl SafeGpuGuard for Plain {
    fn waiting(&self) -> Result<Vec<Pid>> {
        Ok(vec![Pid(7)])
    }
}

impl DeviceMemory for Plain {
    fn info(&self) -> Result<MemoryInfo> {
        Ok(sample(7, 0).memory)
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        Ok(Region { address: 1, size })
    }

    fn release(&self, _: Region) -> Result<()> {
        Ok(())
    }
}

#[track_caller]
fn assert_unsupported<T>(result: Result<T>, what: &str) {
    let error = result.err().expect("it is not supported");
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, what));
}

#[test]
fn job_without_child_list_cannot_be_felled_or_arrested() {
    let token = ActToken::user_confirmed();
    assert_unsupported(
        Plain.kill_tree(&[], Duration::ZERO, &token),
        "kill a job by its child list",
    );
    assert_unsupported(
        Plain.suspend_new(&[], &[], Duration::ZERO, &token),
        "stop the new processes of a job",
    );
    let launch = Launch { program: "train".into(), ..Launch::default() };
    assert_unsupported(Plain.accompany(&launch), "start 'train' next to a job");
}

#[test]
fn held_locks_are_one_queue_and_released_together() {
    assert_eq!(Plain.queues().unwrap(), [[Pid(7)]]);
    let alone = SafeGpuGuard::release(&mut Plain, 3);
    assert_unsupported(alone, "release only lock 3 of safe-gpu");
}

#[test]
fn device_without_virtual_memory_maps_no_pages() {
    let part = Region { address: 16, size: Bytes(2) };
    assert_unsupported(Plain.reserve_addresses(Bytes(2)), "reserve 2 bytes of addresses");
    assert_unsupported(Plain.map(part), "map 2 bytes at 0x10");
    assert_unsupported(Plain.unmap(part), "unmap 2 bytes at 0x10");
    assert_unsupported(Plain.release_addresses(part), "release the addresses at 0x10");
    assert_unsupported(Plain.page(), "query the page size");
}

#[test]
fn shared_device_memory_is_the_memory_itself() {
    let part = Region { address: 16, size: Bytes(2) };
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut memory = MockDeviceMemory::new();
    let note = |name: &'static str| {
        let calls = Arc::clone(&calls);
        move || {
            calls.lock().unwrap().push(name);
            Ok(())
        }
    };
    let call = note("release");
    memory.expect_release().returning(move |_| call());
    let call = note("map");
    memory.expect_map().returning(move |_| call());
    let call = note("unmap");
    memory.expect_unmap().returning(move |_| call());
    let call = note("release addresses");
    memory.expect_release_addresses().returning(move |_| call());
    memory.expect_info().returning(|| Ok(sample(7, 0).memory));
    memory.expect_reserve().returning(move |_| Ok(part));
    memory.expect_reserve_addresses().returning(move |size| Ok(Region { address: 5, size }));
    memory.expect_page().returning(|| Ok(Bytes(99)));
    let shared = Arc::new(memory);
    assert_eq!(shared.info().unwrap(), sample(7, 0).memory);
    assert_eq!(shared.reserve(Bytes(2)).unwrap(), part);
    assert_eq!(shared.reserve_addresses(Bytes(3)).unwrap().address, 5);
    assert_eq!(shared.page().unwrap(), Bytes(99));
    DeviceMemory::release(&shared, part).unwrap();
    DeviceMemory::map(&shared, part).unwrap();
    DeviceMemory::unmap(&shared, part).unwrap();
    DeviceMemory::release_addresses(&shared, part).unwrap();
    assert_eq!(*calls.lock().unwrap(), ["release", "map", "unmap", "release addresses"]);
}

#[test]
fn unopened_audit_log_rejects_lines() {
    let journal = NoJournal::new(Error::new(ErrorKind::Io, "open the audit log"));
    let error = journal.append("line").unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Io, "open the audit log"));
}
