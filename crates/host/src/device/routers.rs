//! Two routers between the ends' namespaces, whose devices have Linux's queue disciplines: the alternative to
//! skyhop's links for runs in a guest.
//!
//! ```text
//! from: skyhop0 == end :near: mid == mid :far: end == skyhop0 :to
//! ```
//!
//! Packets to `to` are queued at the `mid` device of the router near `from`, and delayed at the `end` device of the
//! router near `to`. Packets to `from` are queued at the `mid` device of the router near `to`, and delayed at the
//! `end` device of the router near `from`. The queue is in a router because a queue in the sending host would put
//! back-pressure on the host's sockets.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use skyhop_model::Direction;

use super::counters::{DeviceCount, NamespaceTable};
use super::setup::{self, NAME};
use crate::error::{Context, HostError};
use crate::namespace::{NetNamespace, TcpSettings};
use crate::rtnetlink::{self, VethHalf};
use crate::tc::{Position, TcQdisc, TcStats, TrafficControl};

/// Name of a router's device towards its end of the path.
const END: &str = "end";
/// Name of a router's device towards the other router.
const MID: &str = "mid";
/// MAC address of all devices: without ARP, packets are addressed to the sending device's own address.
const MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
/// Disciplines of one direction, on two devices: one that queues packets and one that delays them. Each device has
/// a root discipline and its child.
#[derive(Debug, Clone, PartialEq)]
pub struct Disciplines {
    /// Rate limiter, and the queue as its child.
    pub queue: [TcQdisc; 2],
    /// Transmission time, and loss and delay as its child.
    pub line: [TcQdisc; 2],
}

impl Disciplines {
    /// Check that the kernel supports the disciplines, by setting them on devices in empty namespaces.
    ///
    /// # Errors
    /// The kernel lacks a discipline, or forbids namespaces.
    pub fn check_support(&self) -> Result<(), HostError> {
        [&self.queue, &self.line].into_iter().try_for_each(|pair| {
            NetNamespace::create()?.inside(|| set(&TrafficControl::open()?, "lo", pair).map(|_| ()))
        })
    }
}

/// Counters of one direction's disciplines.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisciplineStats {
    /// Counters of the disciplines in [`Disciplines::queue`].
    pub queue: [TcStats; 2],
    /// Counters of the disciplines in [`Disciplines::line`].
    pub line: [TcStats; 2],
}

/// Pair of routers between the two ends.
#[derive(Debug)]
pub struct Routers {
    /// Router next to `from`, and router next to `to`.
    routers: [Router; 2],
    /// Counters of the ends' devices.
    tables: [NamespaceTable; 2],
}

#[derive(Debug)]
struct Router {
    /// Handle that keeps the namespace alive.
    _namespace: NetNamespace,
    control: TrafficControl,
    end: u32,
    mid: u32,
}

impl Routers {
    /// Create the only device of each end and the routers between them. `segments` is whether devices may receive
    /// several packets in one GSO buffer, which the queue then segments.
    ///
    /// # Errors
    /// The kernel lacks a discipline or veth devices.
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
        near.inside(|| connect(MID, MID, far, segments))?;
        far.inside(|| bring_up(MID, segments))?;
        let mut tables = Vec::with_capacity(2);
        for ((end, addresses), router) in ends.into_iter().zip(&namespaces) {
            tables.push(end.inside(|| {
                connect(NAME, END, router, segments)?;
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

    /// Change one discipline of the device that queues a direction's packets.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn change_queue(
        &self,
        direction: Direction,
        at: Position,
        qdisc: &TcQdisc,
    ) -> Result<(), HostError> {
        let router = &self.routers[direction.index()];
        router.control.change(router.mid, at, qdisc)
    }

    /// Change one discipline of the device that delays a direction's packets.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn change_line(
        &self,
        direction: Direction,
        at: Position,
        qdisc: &TcQdisc,
    ) -> Result<(), HostError> {
        let router = &self.routers[1 - direction.index()];
        router.control.change(router.end, at, qdisc)
    }

    /// Read the counters of a direction's disciplines.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn stats(&self, direction: Direction) -> Result<DisciplineStats, HostError> {
        let (first, last) =
            (&self.routers[direction.index()], &self.routers[1 - direction.index()]);
        let (queue, line) = (first.control.stats(first.mid)?, last.control.stats(last.end)?);
        Ok(DisciplineStats { queue, line })
    }

    /// Read the kernel's counters of the ends' devices.
    ///
    /// # Errors
    /// The kernel's device table cannot be read.
    pub fn counts(&self) -> Result<[DeviceCount; 2], HostError> {
        Ok([self.tables[0].read()?, self.tables[1].read()?])
    }
}

impl Router {
    /// Configure a router. `own` and `other` are the addresses of the end next to the router and of the other end.
    /// `queue` and `line` are the disciplines of the router's devices towards the other router and towards its end.
    fn set_up(
        namespace: NetNamespace,
        (own, other): (&[Ipv4Addr], &[Ipv4Addr]),
        (queue, line): (&[TcQdisc; 2], &[TcQdisc; 2]),
    ) -> Result<Self, HostError> {
        let (control, mid, end) = namespace.inside(|| {
            let forwarding = "/proc/sys/net/ipv4/ip_forward";
            std::fs::write(forwarding, "1").context(&format!("cannot set {forwarding}"))?;
            let add_routes = |addresses: &[Ipv4Addr], device| {
                addresses.iter().try_for_each(|address| rtnetlink::add_host_route(*address, device))
            };
            add_routes(own, END)
                .and_then(|()| add_routes(other, MID))
                .context("cannot set a route")?;
            let control = TrafficControl::open()?;
            let (mid, end) = (set(&control, MID, queue)?, set(&control, END, line)?);
            Ok::<_, HostError>((control, mid, end))
        })?;
        Ok(Self { _namespace: namespace, control, end, mid })
    }
}

/// Set root discipline and child of a device of the calling thread's namespace; return the device's index.
fn set(
    control: &TrafficControl,
    device: &str,
    [root, below]: &[TcQdisc; 2],
) -> Result<u32, HostError> {
    control.add(device, Position::Root, root)?;
    control.add(device, Position::Below, below)
}

/// Create a veth pair: one end in the calling thread's namespace, the other in `namespace`.
fn connect(
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
