//! Leases within leases: no device is granted twice, whichever of them end.

use crate::fake::{Made, ask, devices, take_now};
use gpu_claim::*;
use gpu_core::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// A claim takes this many devices, out of the live lease at this index, or of the machine's.
    Take { out_of: Option<usize>, count: u32 },
    /// The lease at this index ends; those within it live on.
    End(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let take = (proptest::option::weighted(0.8, 0usize..8), 1u32..4);
    prop_oneof![
        3 => take.prop_map(|(out_of, count)| Step::Take { out_of, count }),
        1 => (0usize..8).prop_map(Step::End),
    ]
}

/// A live lease, with what keeps it alive.
struct Living {
    taken: Taken<()>,
    /// Its whole chain of outer leases, as this test knows it.
    outer: Vec<LeaseId>,
}

fn take_out_of(
    made: &Made,
    outer: Option<&LeaseEntry>,
    count: u32,
) -> Result<Taken<()>, TakeError> {
    let mut nested = ask(count, Wait::No);
    nested.claim.among = outer.map(|outer| outer.devices.clone()).unwrap_or_default();
    nested.within = outer.cloned();
    take_now(made, &nested)
}

proptest! {
    /// Two leases share a device only if one was taken out of the other.
    #[test]
    fn no_device_is_granted_twice_in_any_order_of_ends(
        steps in proptest::collection::vec(any_step(), 1..40)
    ) {
        let made = Made::default();
        let mut living: Vec<Living> = Vec::new();
        for step in steps {
            match step {
                Step::End(place) => {
                    if place < living.len() {
                        drop(living.remove(place));
                    }
                }
                Step::Take { out_of, count } => {
                    let outer = out_of.and_then(|place| living.get(place));
                    let lineage = outer.map_or(Vec::new(), |outer| {
                        [&[outer.taken.entry.id.clone()][..], &outer.outer].concat()
                    });
                    let entry = outer.map(|outer| outer.taken.entry.clone());
                    if let Ok(taken) = take_out_of(&made, entry.as_ref(), count) {
                        living.push(Living { taken, outer: lineage });
                    }
                }
            }
            let mut havers: BTreeMap<&DeviceUuid, Vec<&Living>> = BTreeMap::new();
            for lease in &living {
                for device in &lease.taken.entry.devices {
                    havers.entry(device).or_default().push(lease);
                }
            }
            for (device, havers) in havers {
                for (place, one) in havers.iter().enumerate() {
                    for other in &havers[place + 1..] {
                        let is_related = one.outer.contains(&other.taken.entry.id)
                            || other.outer.contains(&one.taken.entry.id);
                        let ids = (&one.taken.entry.id, &other.taken.entry.id);
                        prop_assert!(is_related, "{device} was granted to both of {ids:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn doubly_nested_lease_counts_after_middle_lease_ended() {
    let made = Made::default();
    let outer = take_out_of(&made, None, 2).ok().unwrap();
    let middle = take_out_of(&made, Some(&outer.entry), 1).ok().unwrap();
    let inner = take_out_of(&made, Some(&middle.entry), 1).ok().unwrap();
    assert_eq!(inner.entry.within, middle.entry.nested());
    assert_eq!(inner.entry.within[1].id, outer.entry.id);
    drop(middle);
    let second = take_out_of(&made, Some(&outer.entry), 1).ok().unwrap();
    assert_eq!(second.entry.devices, devices(&["b"]), "the first is still in use");
    assert_eq!(second.others, std::slice::from_ref(&inner.entry));
    let more = take_out_of(&made, Some(&outer.entry), 1);
    assert!(matches!(more, Err(TakeError::NotNow { .. })));
    drop(inner);
    let again = take_out_of(&made, Some(&outer.entry), 1).ok().unwrap();
    assert_eq!(again.entry.devices, devices(&["a"]));
}

#[test]
fn nested_lease_counts_after_outer_leases_ended() {
    let made = Made::default();
    let outer = take_out_of(&made, None, 1).ok().unwrap();
    let inner = take_out_of(&made, Some(&outer.entry), 1).ok().unwrap();
    drop(outer);
    let next = take_out_of(&made, None, 1).ok().unwrap();
    assert_eq!(next.entry.devices, devices(&["b"]));
    assert_eq!(next.others, [inner.entry]);
}
