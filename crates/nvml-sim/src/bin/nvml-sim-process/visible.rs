//! The devices that `CUDA_VISIBLE_DEVICES` shows to a CUDA program.

use gpu_sim::Device;

/// Returns the indexes of the devices that a value of the variable names, in its order.
///
/// All where it is not set. An entry is an index, counted in PCI order, or the beginning of a UUID
/// that no other device's has; the first one that names nothing, or is of the other kind than the
/// first, ends the list, and one that is there twice leaves nothing of it (CUDA C++ Programming
/// Guide, CUDA environment variables).
pub(crate) fn visible(value: Option<&str>, devices: &[Device]) -> Vec<u32> {
    let Some(value) = value else {
        return devices.iter().map(|device| device.info.id.index).collect();
    };
    let mut shown = Vec::new();
    let mut by_uuid = None;
    for entry in value.split(',').map(str::trim) {
        let is_uuid = entry.starts_with("GPU-");
        let Some(index) = named(entry, devices) else { break };
        if *by_uuid.get_or_insert(is_uuid) != is_uuid {
            break;
        }
        if shown.contains(&index) {
            return Vec::new();
        }
        shown.push(index);
    }
    shown
}

/// Returns the device that an entry names.
fn named(entry: &str, devices: &[Device]) -> Option<u32> {
    if !entry.starts_with("GPU-") {
        let index: u32 = entry.parse().ok()?;
        return devices.iter().map(|device| device.info.id.index).find(|own| *own == index);
    }
    let own =
        |device: &&Device| device.info.id.uuid.as_ref().is_ok_and(|uuid| uuid.0.starts_with(entry));
    let mut found = devices.iter().filter(own);
    let first = found.next()?;
    found.next().is_none().then_some(first.info.id.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_sim::Machine;

    #[test]
    fn a_program_sees_what_cuda_would_show_it() {
        let devices = Machine::embedded("labbox").unwrap().devices;
        let uuid = |index: usize| devices[index].info.id.uuid.clone().unwrap().0;
        for (value, shown) in [
            (None, vec![0, 1, 2, 3]),
            (Some(String::new()), vec![]),
            (Some("2,0".to_owned()), vec![2, 0]),
            (Some(" 1 , 3".to_owned()), vec![1, 3]),
            (Some("0,2,-1,1".to_owned()), vec![0, 2]),
            (Some("0,7,1".to_owned()), vec![0]),
            (Some("1,1".to_owned()), vec![]),
            (Some(format!("{},{}", uuid(3), &uuid(0)[..30])), vec![3, 0]),
            (Some(format!("{},1", uuid(3))), vec![3]),
            (Some(format!("1,{}", uuid(3))), vec![1]),
            (Some("GPU-".to_owned()), vec![]),
            (Some("GPU-nobody".to_owned()), vec![]),
        ] {
            assert_eq!(visible(value.as_deref(), &devices), shown, "{value:?}");
        }
    }
}
