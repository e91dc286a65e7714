//! Layout of a network: its nodes, and the devices through which packets leave them.
//!
//! Nodes 0 to N-1 are the satellites; the sites follow. Every laser link has a device in each direction, every
//! satellite one device towards the sites, and every site one towards the satellites. Devices are numbered in this
//! order: lasers by satellite, satellites, sites.

use skyhop_link::LinkConfig;
use skyhop_units::Duration;

/// Direction of a laser link.
#[derive(Debug, Clone, PartialEq)]
pub struct Laser {
    /// Satellite that sends packets.
    pub from: u32,
    /// Satellite that receives packets.
    pub to: u32,
    /// Rate, queue, loss, and delay over time.
    pub config: LinkConfig,
}

/// Nodes and devices of a network, which stay the same during a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Number of satellites, which are the first nodes.
    pub satellites: u32,
    /// Number of sites, which are the nodes after the satellites.
    pub sites: u32,
    /// Laser links, one entry per direction, in ascending order of (`from`, `to`).
    pub lasers: Vec<Laser>,
    /// Device of each satellite towards the sites. The delay of its schedule is zero; [`View`](crate::View) has the
    /// delay of the air.
    pub down: Vec<LinkConfig>,
    /// Device of each site towards the satellites, without delay as well.
    pub up: Vec<LinkConfig>,
}

impl Layout {
    /// Number of nodes: satellites and sites.
    pub fn nodes(&self) -> usize {
        (self.satellites + self.sites) as usize
    }

    /// Number of devices: one for each direction of a laser link, and one for each node.
    pub fn devices(&self) -> usize {
        self.lasers.len() + self.nodes()
    }

    /// Device of a node towards the ground or the sky.
    pub fn air_device(&self, node: u32) -> usize {
        self.lasers.len() + node as usize
    }

    /// Index in `lasers` of each satellite's first laser, and at the end the number of lasers.
    pub(crate) fn first_lasers(&self) -> Vec<u32> {
        let before = |satellite| self.lasers.partition_point(|laser| laser.from < satellite) as u32;
        (0..=self.satellites).map(before).collect()
    }

    /// Shortest delay that a laser ever has.
    pub(crate) fn least_delay(&self, laser: usize) -> Duration {
        let pieces = self.lasers[laser].config.schedule.delay.iter();
        pieces.map(|piece| piece.delay.min(piece.delay_at_end)).min().unwrap_or_default()
    }
}
