//! Two routers between the ends' namespaces, whose devices have Linux's own disciplines: what a run in a guest may
//! have in place of skyhop's links.
//!
//! ```text
//! from: skyhop0 == end :near: mid == mid :far: end == skyhop0 :to
//! ```
//!
//! Towards `to` packets wait at the near router's `mid` and travel at the far one's `end`; backwards likewise. They
//! wait in a router and not in their host, whose sockets would otherwise notice.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use skyhop_model::Direction;

use super::counters::{DeviceCount, NamespaceTable};
use super::setup::{self, NAME};
use crate::error::{Context, HostError};
use crate::namespace::{NetNamespace, TcpSettings};
use crate::rtnetlink::{self, VethHalf};
use crate::tc::{Position, TcQdisc, TcStats, TrafficControl};

/// A router's device towards its end of the path, and towards the other router.
const END: &str = "end";
const MID: &str = "mid";
/// All devices have the same: without ARP what is sent is addressed to the sending device's own.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
/// The disciplines of one direction: of the device where its packets wait, and of that where they travel; each at the
/// root and below.
#[derive(Debug, Clone, PartialEq)]
pub struct Disciplines {
    /// The rate, and the queue below it.
    pub queue: [TcQdisc; 2],
    /// The time that packets take to be sent, and below it the loss and the delay.
    pub line: [TcQdisc; 2],
}

impl Disciplines {
    /// Whether the kernel has them: sets them where nobody is.
    ///
    /// # Errors
    /// It lacks one, or there may be no namespaces.
    pub fn try_out(&self) -> Result<(), HostError> {
        [&self.queue, &self.line].into_iter().try_for_each(|pair| {
            NetNamespace::create()?.inside(|| set(&TrafficControl::open()?, "lo", pair).map(|_| ()))
        })
    }
}

/// What they have counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisciplineStats {
    /// As [`Disciplines::queue`].
    pub queue: [TcStats; 2],
    /// As [`Disciplines::line`].
    pub line: [TcStats; 2],
}

/// The routers between two ends.
#[derive(Debug)]
pub struct Routers {
    /// That of the end `from`, and that of the end `to`.
    routers: [Router; 2],
    /// The ends' devices.
    tables: [NamespaceTable; 2],
}

#[derive(Debug)]
struct Router {
    /// Held, for nobody else does.
    _namespace: NetNamespace,
    control: TrafficControl,
    end: u32,
    mid: u32,
}

impl Routers {
    /// Gives each end its only device, and joins them. `segments`: whether a device may be given several packets in
    /// one, which the queue takes apart.
    ///
    /// # Errors
    /// The kernel lacks a discipline, or veth devices.
    pub fn create(
        ends: [(&NetNamespace, &[Ipv4Addr]); 2],
        disciplines: [&Disciplines; 2],
        segments: bool,
    ) -> Result<Self, HostError> {
        let namespaces = [NetNamespace::create()?, NetNamespace::create()?];
        for namespace in &namespaces {
            namespace.tune(&TcpSettings::default())?;
        }
        let [near, far] = &namespaces;
        near.inside(|| join(MID, MID, far, segments))?;
        far.inside(|| bring_up(MID, segments))?;
        let mut tables = Vec::with_capacity(2);
        for ((end, addresses), router) in ends.into_iter().zip(&namespaces) {
            tables.push(end.inside(|| {
                join(NAME, END, router, segments)?;
                setup::configure(addresses, libc::IFF_NOARP)?;
                NamespaceTable::open()
            })?);
            router.inside(|| bring_up(END, segments))?;
        }
        let [near, far] = namespaces;
        let [(_, from), (_, to)] = ends;
        let near = Router::set_up(near, (from, to), (&disciplines[0].queue, &disciplines[1].line))?;
        let far = Router::set_up(far, (to, from), (&disciplines[1].queue, &disciplines[0].line))?;
        let [from_table, to_table] = <[NamespaceTable; 2]>::try_from(tables)
            .map_err(|_| HostError::Unsupported("a path has two ends".to_owned()))?;
        Ok(Self { routers: [near, far], tables: [from_table, to_table] })
    }

    /// Changes one discipline of the device where packets of a direction wait.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn change_queue(
        &self,
        direction: Direction,
        at: Position,
        qdisc: &TcQdisc,
    ) -> Result<(), HostError> {
        let router = &self.routers[direction.index()];
        router.control.change(router.mid, at, qdisc)
    }

    /// Changes one discipline of the device where they travel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn change_line(
        &self,
        direction: Direction,
        at: Position,
        qdisc: &TcQdisc,
    ) -> Result<(), HostError> {
        let router = &self.routers[1 - direction.index()];
        router.control.change(router.end, at, qdisc)
    }

    /// What the disciplines of a direction have counted.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stats(&self, direction: Direction) -> Result<DisciplineStats, HostError> {
        let (first, last) =
            (&self.routers[direction.index()], &self.routers[1 - direction.index()]);
        let (queue, line) = (first.control.stats(first.mid)?, last.control.stats(last.end)?);
        Ok(DisciplineStats { queue, line })
    }

    /// What the kernel has counted at the ends' devices.
    ///
    /// # Errors
    /// It does not say.
    pub fn counts(&self) -> Result<[DeviceCount; 2], HostError> {
        Ok([self.tables[0].read()?, self.tables[1].read()?])
    }
}

impl Router {
    /// `own`, `other`: the addresses of its end and of the other one. `queue`, `line`: of its device towards the other
    /// router, and towards its end.
    fn set_up(
        namespace: NetNamespace,
        (own, other): (&[Ipv4Addr], &[Ipv4Addr]),
        (queue, line): (&[TcQdisc; 2], &[TcQdisc; 2]),
    ) -> Result<Self, HostError> {
        let (control, mid, end) = namespace.inside(|| {
            let passes_on = "/proc/sys/net/ipv4/ip_forward";
            std::fs::write(passes_on, "1").context(&format!("cannot set {passes_on}"))?;
            let lead = |addresses: &[Ipv4Addr], device| {
                addresses.iter().try_for_each(|address| rtnetlink::lead(*address, device))
            };
            lead(own, END).and_then(|()| lead(other, MID)).context("cannot set a route")?;
            let control = TrafficControl::open()?;
            let (mid, end) = (set(&control, MID, queue)?, set(&control, END, line)?);
            Ok::<_, HostError>((control, mid, end))
        })?;
        Ok(Self { _namespace: namespace, control, end, mid })
    }
}

/// Gives a device of the calling thread's namespace two disciplines; returns the device's number.
fn set(
    control: &TrafficControl,
    device: &str,
    [root, below]: &[TcQdisc; 2],
) -> Result<u32, HostError> {
    control.add(device, Position::Root, root)?;
    control.add(device, Position::Below, below)
}

/// Makes a pair of devices: one in the calling thread's namespace, the other in `namespace`.
fn join(
    here: &str,
    there: &str,
    namespace: &NetNamespace,
    segments: bool,
) -> Result<(), HostError> {
    let (here, there) = (VethHalf { name: here, mac: MAC }, VethHalf { name: there, mac: MAC });
    rtnetlink::add_veth(here, there, namespace.as_fd()).context("cannot make a veth device")?;
    bring_up(here.name, segments)
}

fn bring_up(device: &str, segments: bool) -> Result<(), HostError> {
    if !segments {
        setup::turn_offloads_off(device)?;
    }
    setup::bring_up(device, libc::IFF_NOARP)
}
