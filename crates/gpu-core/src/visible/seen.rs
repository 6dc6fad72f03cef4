//! The devices that the programs of an environment see.

use super::{GivenList, Grammar, Resolved, devices_of};
use crate::error::Result;
use crate::snapshot::DeviceState;

/// What the variables of an environment let its programs see.
#[derive(Debug, Default)]
pub struct Seen {
    /// The lists of the environment, one for each variable that is set. A vendor may have several,
    /// each within the one before.
    pub lists: Vec<SeenList>,
    /// The indexes of the devices, in the order of the list; of a vendor without a list, all.
    /// `None` if a list is ambiguous.
    pub devices: Option<Vec<u32>>,
}

/// A list of visible devices.
#[derive(Debug)]
pub struct SeenList {
    /// The variable.
    pub variable: &'static str,
    /// Its value, verbatim.
    pub value: String,
    /// The indexes of the devices on the machine, in the order of the list.
    pub devices: Result<Vec<u32>>,
}

impl Seen {
    /// Reads the variables of all `grammars`, for the devices of a machine. `variable` returns the
    /// value of a variable, if it is set.
    pub fn of(
        grammars: &[&dyn Grammar],
        variable: &dyn Fn(&str) -> Option<String>,
        machine: &[DeviceState],
    ) -> Self {
        let mut seen = Seen { lists: Vec::new(), devices: Some(Vec::new()) };
        for grammar in grammars {
            let visibility = grammar.visibility();
            let own = machine.iter().filter(|device| device.info.visibility == visibility);
            let own: Vec<u32> = own.map(|device| device.id().index).collect();
            let devices = devices_of(visibility, machine);
            let on_machine = |named: Resolved| {
                let mut indexes: Vec<u32> = Vec::new();
                for named in named.devices {
                    let at = devices.iter().position(|device| device.id().index == named.index);
                    let index = at.and_then(|at| own.get(at));
                    // A list may name several partitions of a device.
                    indexes.extend(index.filter(|index| !indexes.contains(index)));
                }
                indexes
            };
            let mut here = Some(own.clone());
            for GivenList { variable, value, resolved } in grammar.lists(variable, machine) {
                let devices = resolved.map(on_machine);
                here = devices.as_ref().ok().cloned();
                seen.lists.push(SeenList { variable, value, devices });
            }
            seen.devices = seen.devices.zip(here).map(|(known, here)| [known, here].concat());
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceInfo;
    use crate::id::{DeviceId, DeviceUuid};
    use crate::visible::Visibility;
    use crate::visible::cuda::{CUDA, Cuda};
    use crate::{Absent, DeviceDetails, DeviceSample};

    fn device(index: u32, visibility: Visibility) -> DeviceState {
        let uuid = Ok(DeviceUuid(format!("GPU-{index}")));
        let info = DeviceInfo::unknown(DeviceId { uuid, ..DeviceId::from_index(index) });
        DeviceState {
            info: DeviceInfo { visibility, name: Ok("Test".into()), ..info },
            sample: Ok(DeviceSample::absent(Absent::NotRecorded)),
            processes: Ok(Vec::new()),
            partitions: Ok(Vec::new()),
            details: Ok(DeviceDetails::default()),
        }
    }

    fn seen(machine: &[DeviceState], value: Option<&str>, order: &str) -> Seen {
        let variable = |name: &str| match name {
            "CUDA_VISIBLE_DEVICES" => value.map(str::to_owned),
            "CUDA_DEVICE_ORDER" => Some(order.to_owned()),
            _ => None,
        };
        Seen::of(&[&Cuda], &variable, machine)
    }

    #[test]
    fn devices_are_those_of_the_list_in_its_order() {
        let other = Visibility {
            vendor: "other",
            variable: "OTHER",
            order: None,
            isolates_partitions: false,
        };
        // The second device belongs to another vendor, so CUDA counts 0, 1.
        let machine = [device(0, CUDA), device(1, other), device(2, CUDA)];
        assert_eq!(seen(&machine, None, "PCI_BUS_ID").devices, Some(vec![0, 2]));
        assert!(seen(&machine, None, "PCI_BUS_ID").lists.is_empty());
        for (value, want) in [
            ("1,0", vec![2, 0]),
            ("1", vec![2]),
            ("", vec![]),
            ("0,-1,1", vec![0]),
            ("GPU-2", vec![2]),
        ] {
            let seen = seen(&machine, Some(value), "PCI_BUS_ID");
            assert_eq!(seen.devices.as_ref(), Some(&want), "{value}");
            let [list] = &seen.lists[..] else { panic!("{:?}", seen.lists) };
            assert_eq!((&*list.value, list.devices.as_ref().ok()), (value, Some(&want)));
        }
    }

    #[test]
    fn ambiguous_list_shows_no_devices() {
        let mut machine = [0, 1].map(|index| device(index, CUDA));
        machine[1].info.name = Ok("Faster".to_owned());
        let seen = seen(&machine, Some("0"), "FASTEST_FIRST");
        assert!(seen.devices.is_none() && seen.lists[0].devices.is_err());
    }
}
