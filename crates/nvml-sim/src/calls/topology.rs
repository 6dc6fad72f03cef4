//! The topology.

use crate::code::{Answer, Code};
use crate::entry::{exports, guard};
use crate::library;
use crate::pointer::{Handle, Out};
use crate::view::{Subject, View};
use gpu_core::{Absent, Link, PeerAccess, Topology};
use std::ffi::c_uint;

/// Levels (`nvmlGpuTopologyLevel_t`).
const INTERNAL: c_uint = 0;
const SINGLE: c_uint = 10;
const MULTIPLE: c_uint = 20;
const HOST_BRIDGE: c_uint = 30;
const NODE: c_uint = 40;
const SYSTEM: c_uint = 50;
/// The kinds of peer access (`nvmlGpuP2PCapsIndex_t`).
const READ: c_uint = 0;
const WRITE: c_uint = 1;
const NVLINK: c_uint = 2;
const CAPABILITIES: c_uint = 5;

fn topology(view: &View) -> Answer<&Topology> {
    Ok(view.topology.as_ref().map_err(|absent| *absent)?)
}

fn cell<T: Copy>(rows: &[Vec<T>], from: Subject<'_>, to: Subject<'_>) -> Answer<T> {
    let row = rows.get(from.index() as usize);
    let cell = row.and_then(|row| row.get(to.index() as usize));
    Ok(*cell.ok_or(Absent::NotSupported)?)
}

fn link(from: Subject<'_>, to: Subject<'_>) -> Answer<Link> {
    cell(&topology(from.view)?.links, from, to)
}

/// Returns the nearest common ancestor in the PCI tree.
fn level(from: Subject<'_>, to: Subject<'_>) -> Answer<c_uint> {
    Ok(match cell(&topology(from.view)?.paths, from, to)? {
        Link::Itself => INTERNAL,
        Link::Pix => SINGLE,
        Link::Pxb => MULTIPLE,
        Link::Phb => HOST_BRIDGE,
        Link::Node => NODE,
        Link::Sys => SYSTEM,
        Link::NvLink(_) | Link::Xgmi | Link::Unknown => return Err(Code::UNKNOWN),
    })
}

/// Returns the peer access status (`nvmlGpuP2PStatus_t`).
fn status(access: PeerAccess) -> c_uint {
    match access {
        PeerAccess::Itself | PeerAccess::Ok => 0,
        PeerAccess::ChipsetNotSupported => 1,
        PeerAccess::DeviceNotSupported => 2,
        PeerAccess::TopologyNotSupported => 3,
        PeerAccess::Disabled => 4,
        PeerAccess::NotSupported => 5,
        PeerAccess::Unknown => 6,
    }
}

fn peer(from: Subject<'_>, to: Subject<'_>, capability: c_uint) -> Answer<c_uint> {
    match capability {
        READ | WRITE => Ok(status(cell(&topology(from.view)?.peers, from, to)?)),
        NVLINK => Ok(match link(from, to)? {
            Link::NvLink(_) => status(PeerAccess::Ok),
            Link::Unknown => status(PeerAccess::Unknown),
            _ => status(PeerAccess::NotSupported),
        }),
        other if other < CAPABILITIES => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// Answers a call about two devices.
fn pair(
    function: &'static str,
    from: Handle,
    to: Handle,
    body: impl FnOnce(Subject<'_>, Subject<'_>) -> Answer,
) -> u32 {
    guard(|| {
        let view = library::enter(function, from.parts().ok().map(|(index, _)| index))?;
        let (from, to) = (view.subject(from)?, view.subject(to)?);
        from.check()?;
        to.check()?;
        body(from, to)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    from: Handle,
    to: Handle,
    path: Out<c_uint>,
) -> u32 {
    pair("nvmlDeviceGetTopologyCommonAncestor", from, to, |from, to| path.put(level(from, to)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    from: Handle,
    to: Handle,
    capability: c_uint,
    state: Out<c_uint>,
) -> u32 {
    pair("nvmlDeviceGetP2PStatus", from, to, |from, to| state.put(peer(from, to, capability)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceOnSameBoard(from: Handle, to: Handle, same: Out<c_uint>) -> u32 {
    pair("nvmlDeviceOnSameBoard", from, to, |from, to| {
        same.put((level(from, to)? == INTERNAL).into())
    })
}

exports! {
    gpu [nvmlDeviceGetTopologyNearestGpus](wanted: c_uint, count: Out<c_uint>, found: Out<Handle>)
        |gpu| {
        let others = gpu.view.subjects().filter(|other| other.index() != gpu.index());
        let mut near = Vec::new();
        for other in others {
            if level(gpu, other)? == wanted {
                near.push(other.handle());
            }
        }
        found.put_list(count, &near)
    }
}
