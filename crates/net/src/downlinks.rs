//! Downlinks of a satellite: one for each group of sites that share one, and one for each site that has its own.

use skyhop_link::{LinkError, LinkStats, Packet};
use skyhop_units::Instant;

use crate::device::{AirDevice, Losses};
use crate::layout::{Downlink, Layout};
use crate::transfer::Routed;

/// Downlinks of one satellite.
pub(crate) struct Downlinks<P> {
    satellite: u32,
    /// Downlinks of groups by their numbers, then those of single sites that packets have taken so far, by the sites.
    devices: Vec<AirDevice<P>>,
    /// Number of each downlink's device in the layout.
    numbers: Vec<usize>,
    /// Site of each downlink after those of groups.
    sites: Vec<u32>,
}

impl<P: Routed> Downlinks<P> {
    pub(crate) fn new(layout: &Layout, satellite: u32) -> Result<Self, LinkError> {
        let groups = layout.down.iter();
        let shared = groups.map(|of_group| AirDevice::new(&of_group[satellite as usize]));
        let number = |group| layout.group_device(group, satellite);
        Ok(Self {
            satellite,
            devices: shared.collect::<Result<_, _>>()?,
            numbers: (0..layout.down.len()).map(number).collect(),
            sites: Vec::new(),
        })
    }

    /// Let a packet from a node enter the queue of the downlink to its site. The error is the number of the device, and a
    /// packet that is lost because the queue of a plain link is full.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        layout: &Layout,
        now: Instant,
        from: u32,
        packet: Packet<P>,
    ) -> Result<(), (usize, Packet<P>)> {
        let site = packet.payload.destination();
        let index = match layout.downlinks[site as usize] {
            Downlink::Shared(group) => group as usize,
            Downlink::Own(_) => self.own(layout, site),
        };
        let entered = self.devices[index].enqueue(now, from, packet);
        entered.map_err(|packet| (self.numbers[index], packet))
    }

    /// Index of the downlink to a site that has its own, which exists from its first packet on.
    fn own(&mut self, layout: &Layout, site: u32) -> usize {
        let groups = layout.down.len();
        let place = match self.sites.binary_search(&site) {
            Ok(place) => return groups + place,
            Err(place) => place,
        };
        let config = layout.own_downlink(self.satellite, site);
        let device = AirDevice::new(&config).expect("the layout has been checked");
        self.sites.insert(place, site);
        self.numbers.insert(groups + place, layout.own_device(site));
        self.devices.insert(groups + place, device);
        groups + place
    }

    /// Time of the next event; [`Instant::NEVER`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.devices.iter().map(AirDevice::next).min().unwrap_or(Instant::NEVER)
    }

    /// Return the next packet whose transmission has ended by `now`, of the first downlink that has one.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Packet<P>> {
        self.devices.iter_mut().find_map(|device| device.pop(now))
    }

    /// Record the losses of links with events of their own.
    #[inline]
    pub(crate) fn take_losses(&mut self, losses: &mut Losses<P>) {
        for (number, device) in self.numbers.iter().zip(&mut self.devices) {
            device.take_losses(*number, losses);
        }
    }

    /// Add the counters of the downlinks to those of their devices.
    pub(crate) fn add_stats(&mut self, now: Instant, stats: &mut [LinkStats]) {
        for (number, device) in self.numbers.iter().zip(&mut self.devices) {
            stats[*number] = stats[*number].plus(device.stats(now));
        }
    }
}
