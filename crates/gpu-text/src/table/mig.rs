//! Rows of the table of MIG devices.

use super::cell;
use super::line::Row;
use crate::document::MigDevice;
use crate::field;

/// Parses `|  0   7   0   0  |   13MiB /  9728MiB | …`; `None` for any other row, including the
/// second one of a MIG device (its BAR1 memory).
pub(super) fn row(row: Row<'_>) -> Option<MigDevice> {
    let (ids, true) = row.cell(0)? else { return None };
    let mut words = ids.split_whitespace();
    let gpu = words.next()?;
    let mut id = || words.next().map(|word| field::number(word).ok());
    let (gpu_instance_id, compute_instance_id, mig_index) = (id()?, id()?, id()?);
    if words.next().is_some() {
        return None;
    }
    let [used, total] = cell::memory_pair(row.cell(1).map_or("", |(cell, _)| cell));
    Some(MigDevice {
        gpu_index: Some(field::number(gpu).ok()?),
        gpu_instance_id,
        compute_instance_id,
        mig_index: Some(mig_index?),
        memory_used_mib: used,
        memory_total_mib: total,
        ..MigDevice::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::Absent;

    fn read(text: &str) -> Option<MigDevice> {
        row(Row { text, opened: true, closed: false, last: false })
    }

    #[test]
    fn instances_and_memory_are_parsed() {
        let mig =
            read("  0   12   1   5  |   2004MiB /  9728MiB    | 14      0 |  1   0 ").unwrap();
        assert_eq!((mig.gpu_index, mig.gpu_instance_id), (Some(0), Some(12)));
        assert_eq!((mig.compute_instance_id, mig.mig_index), (Some(1), Some(5)));
        assert_eq!((mig.memory_used_mib, mig.memory_total_mib), (Ok(2004), Ok(9728)));
    }

    #[test]
    fn other_rows_are_not_mig_rows() {
        assert_eq!(read("              |    2MiB / 16383MiB  |    |    "), None);
        assert_eq!(read("  No MIG devices found      "), None);
        assert_eq!(read("  0   12   1   1"), None, "the last number may be cut");
    }

    #[test]
    fn truncated_row_keeps_its_cells() {
        let mig = read("  0   12   1   5  |   2004MiB /  97").unwrap();
        assert_eq!(mig.memory_used_mib, Ok(2004));
        assert_eq!(mig.memory_total_mib, Err(Absent::NotRecorded));
    }
}
