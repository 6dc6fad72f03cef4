//! A device as a message, in the same form as other JSON, except that its processes are rows of
//! values without names, because a snapshot has thousands of them.

use gpu_core::{
    Absent, Bytes, DeviceDetails, DeviceInfo, DeviceProcess, DeviceProcessKind, DeviceSample,
    DeviceState, Fault, Partition, Percent, Pid, Reading,
};
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

#[derive(Serialize, Deserialize)]
#[serde(remote = "DeviceState")]
struct Line {
    info: DeviceInfo,
    sample: Result<DeviceSample, Fault>,
    #[serde(with = "rows")]
    processes: Result<Vec<DeviceProcess>, Fault>,
    #[serde(rename = "mig")]
    partitions: Result<Vec<Partition>, Fault>,
    #[serde(default = "no_details", skip_serializing_if = "is_empty")]
    details: Result<DeviceDetails, Fault>,
}

fn no_details() -> Result<DeviceDetails, Fault> {
    Ok(DeviceDetails::default())
}

fn is_empty(details: &Result<DeviceDetails, Fault>) -> bool {
    details.as_ref().is_ok_and(DeviceDetails::is_empty)
}

pub(crate) fn serialize<S: Serializer>(
    device: &DeviceState,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Line::serialize(device, serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Box<DeviceState>, D::Error> {
    Line::deserialize(deserializer).map(Box::new)
}

mod rows {
    use super::{DeviceProcess, Fault, Row};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        processes: &Result<Vec<DeviceProcess>, Fault>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let processes = processes.as_ref().map(|processes| processes.iter().map(Row));
        processes.map(Iterator::collect::<Vec<_>>).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<Vec<DeviceProcess>, Fault>, D::Error> {
        let rows = Result::<Vec<Row<DeviceProcess>>, Fault>::deserialize(deserializer)?;
        Ok(rows.map(|rows| rows.into_iter().map(|row| row.0).collect()))
    }
}

/// A process: PID, kind, memory and utilization; then name, GPU instance and compute instance,
/// unless they have the values that NVML returns for nearly all processes.
struct Row<P>(P);

/// NVML does not report names.
const NO_NAME: Reading<String> = Err(Absent::NotSupported);

/// A value or the reason for its absence.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Value<T>(
    #[serde(
        with = "gpu_core::reading",
        bound(serialize = "T: Serialize", deserialize = "T: Deserialize<'de>")
    )]
    Reading<T>,
);

impl Serialize for Row<&DeviceProcess> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let DeviceProcess { pid, kind, memory, utilization, name, gpu_instance, compute_instance } =
            self.0;
        let is_usual = *name == NO_NAME && gpu_instance.is_none() && compute_instance.is_none();
        let mut row = serializer.serialize_seq(Some(if is_usual { 4 } else { 7 }))?;
        row.serialize_element(pid)?;
        row.serialize_element(kind)?;
        row.serialize_element(&Value(*memory))?;
        row.serialize_element(&Value(*utilization))?;
        if !is_usual {
            row.serialize_element(&Value(name.clone()))?;
            row.serialize_element(gpu_instance)?;
            row.serialize_element(compute_instance)?;
        }
        row.end()
    }
}

impl<'de> Deserialize<'de> for Row<DeviceProcess> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Values)
    }
}

struct Values;

impl<'de> Visitor<'de> for Values {
    type Value = Row<DeviceProcess>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("four or seven values of a process")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Self::Value, A::Error> {
        fn next<'de, A: SeqAccess<'de>, T: Deserialize<'de>>(
            row: &mut A,
            index: usize,
        ) -> Result<T, A::Error> {
            row.next_element()?.ok_or_else(|| Error::invalid_length(index, &Values))
        }
        let pid: Pid = next(&mut row, 0)?;
        let kind: DeviceProcessKind = next(&mut row, 1)?;
        let Value(memory) = next::<_, Value<Bytes>>(&mut row, 2)?;
        let Value(utilization) = next::<_, Value<Percent>>(&mut row, 3)?;
        let (mut name, mut gpu_instance, mut compute_instance) = (NO_NAME, None, None);
        if let Some(Value(own)) = row.next_element()? {
            name = own;
            gpu_instance = next(&mut row, 5)?;
            compute_instance = next(&mut row, 6)?;
        }
        Ok(Row(DeviceProcess {
            pid,
            kind,
            memory,
            utilization,
            name,
            gpu_instance,
            compute_instance,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{self, Reply};
    use super::*;
    use gpu_core::{DeviceId, ErrorKind, Groups};

    #[test]
    fn device_round_trips() {
        let fault = || Fault { kind: ErrorKind::TimedOut, text: "x".to_owned() };
        let info = DeviceInfo::unknown(DeviceId::from_index(3));
        let usual = DeviceProcess {
            pid: Pid(4711),
            kind: DeviceProcessKind::Compute,
            memory: Ok(Bytes(1 << 30)),
            utilization: Err(Absent::NotSupported),
            name: NO_NAME,
            gpu_instance: None,
            compute_instance: None,
        };
        let processes = vec![
            usual.clone(),
            DeviceProcess { memory: Err(Absent::NotPermitted), ..usual.clone() },
            DeviceProcess { name: Ok("a\n\"b".to_owned()), ..usual.clone() },
            DeviceProcess { gpu_instance: Some(7), ..usual.clone() },
            DeviceProcess { gpu_instance: Some(7), compute_instance: Some(0), ..usual },
        ];
        for processes in [Ok(processes), Ok(vec![]), Err(fault())] {
            let mut device = DeviceState::unanswered(info.clone(), Groups::NONE, &fault());
            device.processes = processes;
            let mut line = Vec::new();
            wire::write(&mut line, &Reply::Device(Box::new(device.clone()))).unwrap();
            let back: Reply = serde_json::from_slice(&line).unwrap();
            assert!(matches!(back, Reply::Device(back) if *back == device), "{device:?}");
        }
    }

    #[test]
    fn row_with_wrong_length_is_refused() {
        for row in ["[]", "[1,\"compute\",2]", "[1,\"compute\",2,3,\"a\"]", "{}"] {
            assert!(serde_json::from_str::<Row<DeviceProcess>>(row).is_err(), "{row}");
        }
        let long = "[1,\"compute\",2,3,\"a\",null,null,9]";
        assert!(serde_json::from_str::<Row<DeviceProcess>>(long).is_err());
        let row = serde_json::from_str::<Row<DeviceProcess>>("[1,\"compute\",2,3]").unwrap();
        assert_eq!(serde_json::to_string(&Row(&row.0)).unwrap(), "[1,\"compute\",2,3]");
    }
}
