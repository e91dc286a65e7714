//! Division of a network's satellites among partitions.

use std::ops::Range;

use skyhop_units::Duration;

use crate::layout::Layout;

/// Consecutive satellites of each partition, and the ways of packets between them. Consecutive satellites are neighbours
/// in a plane of a shell, so that most lasers stay within a partition.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Number of partitions, without that of the sites.
    pub(crate) partitions: usize,
    satellites: u32,
    /// Index in the lasers of each satellite's first one, and at the end the number of lasers.
    pub(crate) first_lasers: Vec<u32>,
    /// Lasers in the order of their far ends, and then of their numbers.
    arriving: Vec<u32>,
    /// Index in `arriving` of the first laser to each satellite, and at the end the number of lasers.
    first_arriving: Vec<u32>,
    /// Place of each laser in `arriving`.
    pub(crate) arriving_places: Vec<u32>,
    /// Shortest delay of a laser.
    pub(crate) lookahead: Duration,
}

impl Fleet {
    /// Divide the satellites among so many partitions, or fewer if there are not so many satellites.
    pub(crate) fn new(layout: &Layout, partitions: usize) -> Self {
        let lasers = layout.lasers.len() as u32;
        let mut arriving: Vec<u32> = (0..lasers).collect();
        arriving.sort_by_key(|laser| layout.lasers[*laser as usize].to);
        let to = |place: usize| layout.lasers[arriving[place] as usize].to;
        let places: Vec<u32> = (0..arriving.len()).map(to).collect();
        let before = |satellite| places.partition_point(|to| *to < satellite) as u32;
        let mut arriving_places = vec![0; arriving.len()];
        for (place, laser) in (0..).zip(&arriving) {
            arriving_places[*laser as usize] = place;
        }
        let delays = (0..layout.lasers.len()).map(|laser| layout.least_delay(laser));
        Self {
            partitions: partitions.clamp(1, layout.satellites.max(1) as usize),
            satellites: layout.satellites,
            first_lasers: layout.first_lasers(),
            first_arriving: (0..=layout.satellites).map(before).collect(),
            lookahead: delays.min().unwrap_or(Duration::MAX),
            arriving,
            arriving_places,
        }
    }

    /// Satellites of a partition.
    pub(crate) fn satellites(&self, partition: usize) -> Range<u32> {
        let first = |partition: usize| {
            let before = partition as u64 * u64::from(self.satellites);
            before.div_ceil(self.partitions as u64) as u32
        };
        first(partition)..first(partition + 1)
    }

    /// Partition of a satellite.
    #[inline]
    pub(crate) fn home(&self, satellite: u32) -> usize {
        (u64::from(satellite) * self.partitions as u64 / u64::from(self.satellites)) as usize
    }

    /// Lasers from some satellites.
    pub(crate) fn lasers_from(&self, satellites: &Range<u32>) -> Range<usize> {
        let first = |satellite: u32| self.first_lasers[satellite as usize] as usize;
        first(satellites.start)..first(satellites.end)
    }

    /// Places of the lasers to some satellites in the order of their far ends.
    pub(crate) fn arriving_at(&self, satellites: &Range<u32>) -> Range<usize> {
        let first = |satellite: u32| self.first_arriving[satellite as usize] as usize;
        first(satellites.start)..first(satellites.end)
    }

    /// Number of the laser at a place in the order of the far ends.
    pub(crate) fn arriving(&self, place: usize) -> usize {
        self.arriving[place] as usize
    }
}
