//! Layout of a network: its nodes, and the devices through which packets leave them.
//!
//! Nodes 0 to N-1 are the satellites; the sites follow. Every laser link has a device in each direction, every
//! satellite devices towards the sites, and every site one towards the satellites. Devices are numbered in this order:
//! lasers by satellite, downlinks of satellites to the first group of sites, uplinks of sites, downlinks to further groups,
//! and for each site with downlinks of its own one number for those of all satellites together.

use skyhop_link::{Link, LinkConfig, LinkError};
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
    /// Devices of the satellites towards each group of sites, by satellite; at least one group. The delay of their schedules
    /// is in addition to that of the air, which [`View`](crate::View) has.
    pub down: Vec<Vec<LinkConfig>>,
    /// Downlinks to each site.
    pub downlinks: Vec<Downlink>,
    /// Device of each site towards the satellites; the delay is in addition to that of the air as well.
    pub up: Vec<LinkConfig>,
    /// Whether each site has no antenna, so that packets enter and leave it over the sites that
    /// [`Air::antenna`](crate::Air::antenna) says.
    pub is_behind: Vec<bool>,
}

/// Downlinks to a site.
#[derive(Debug, Clone, PartialEq)]
pub enum Downlink {
    /// Share of the devices of a group, by its number in [`Layout::down`].
    Shared(u32),
    /// Device of each satellite for this site alone. While the satellite's device for the first group has an outage or
    /// is dismantled, this one has or is, too.
    Own(Box<LinkConfig>),
}

impl Layout {
    /// Number of nodes: satellites and sites.
    pub fn nodes(&self) -> usize {
        (self.satellites + self.sites) as usize
    }

    /// Number of devices of all nodes.
    pub fn devices(&self) -> usize {
        let own = self.downlinks.iter().filter(|downlink| matches!(downlink, Downlink::Own(_)));
        self.first_own_device() + own.count()
    }

    fn first_own_device(&self) -> usize {
        self.lasers.len() + self.nodes() + (self.down.len() - 1) * self.satellites as usize
    }

    /// Device of a satellite towards a group of sites.
    pub fn group_device(&self, group: usize, satellite: u32) -> usize {
        match group.checked_sub(1) {
            None => self.air_device(satellite),
            Some(further) => {
                let first = self.lasers.len() + self.nodes() + further * self.satellites as usize;
                first + satellite as usize
            }
        }
    }

    /// Device that stands for the downlinks of all satellites to a site that has its own.
    pub fn own_device(&self, site: u32) -> usize {
        let before = self.downlinks[..site as usize].iter();
        let own = before.filter(|downlink| matches!(downlink, Downlink::Own(_)));
        self.first_own_device() + own.count()
    }

    /// Configuration of a satellite's downlink to a site.
    pub(crate) fn own_downlink(&self, satellite: u32, site: u32) -> LinkConfig {
        let of_satellite = &self.down[0][satellite as usize];
        let Downlink::Own(config) = &self.downlinks[site as usize] else {
            return of_satellite.clone();
        };
        let mut config = LinkConfig { seed: config.seed ^ of_satellite.seed, ..(**config).clone() };
        let (own, other) = (&mut config.schedule, &of_satellite.schedule);
        own.add_outages(other.outages.iter().copied());
        own.dismantled.extend(other.dismantled.iter().copied());
        own.dismantled.sort_by_key(|hop| hop.at);
        config
    }

    /// Check the downlinks of single sites.
    ///
    /// # Errors
    /// The configuration of one breaks a rule.
    pub(crate) fn check_own_downlinks(&self) -> Result<(), LinkError> {
        let own = |(site, downlink): (u32, &Downlink)| match downlink {
            Downlink::Shared(_) => Ok(()),
            Downlink::Own(config) => {
                Link::<()>::new((**config).clone())?;
                Link::<()>::new(self.own_downlink(0, site)).map(drop)
            }
        };
        (0..).zip(&self.downlinks).try_for_each(own)
    }

    /// First device of a node towards the ground or the sky.
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
