//! Division of a network's nodes among partitions.

use skyhop_units::Duration;

use crate::layout::Layout;

/// Partition of every node, and the places of every component in its partition.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Partition of each node; partition 0 has all sites.
    pub(crate) homes: Vec<u16>,
    pub(crate) partitions: usize,
    /// Index of each device in its partition.
    pub(crate) device_places: Vec<u32>,
    /// Index of each laser's arrivals in the partition of its far end.
    pub(crate) line_places: Vec<u32>,
    /// Index of each node in its partition.
    pub(crate) node_places: Vec<u32>,
    /// Index in the lasers of each satellite's first one.
    pub(crate) first_lasers: Vec<u32>,
    /// Far end of each laser.
    pub(crate) far_ends: Vec<u32>,
    /// Shortest delay of a laser from one partition to another.
    pub(crate) lookahead: Duration,
}

impl Fleet {
    /// Divide satellites among `groups` partitions, in addition to that of the sites; none of their own with 0 groups.
    ///
    /// Consecutive satellites are neighbours in a plane of a shell, so that most lasers stay within a partition.
    pub(crate) fn new(layout: &Layout, groups: usize) -> Self {
        let groups = groups.min(layout.satellites as usize);
        let home = |node: usize| match node.checked_sub(layout.satellites as usize) {
            None if groups > 0 => 1 + (node * groups / layout.satellites as usize) as u16,
            _ => 0,
        };
        let homes: Vec<u16> = (0..layout.nodes()).map(home).collect();
        let home_of = |node: u32| homes[node as usize];
        let device_homes: Vec<u16> =
            (0..layout.devices()).map(|device| home_of(layout.device_node(device))).collect();
        let line_homes: Vec<u16> = layout.lasers.iter().map(|laser| home_of(laser.to)).collect();
        let crossing = layout.lasers.iter().enumerate();
        let crossing = crossing.filter(|(_, laser)| home_of(laser.from) != home_of(laser.to));
        let lookahead = crossing.map(|(number, _)| layout.least_delay(number)).min();
        Self {
            partitions: groups + 1,
            device_places: places(&device_homes, groups + 1),
            line_places: places(&line_homes, groups + 1),
            node_places: places(&homes, groups + 1),
            first_lasers: layout.first_lasers(),
            far_ends: layout.lasers.iter().map(|laser| laser.to).collect(),
            lookahead: lookahead.unwrap_or(Duration::MAX),
            homes,
        }
    }

    pub(crate) fn home(&self, node: u32) -> u16 {
        self.homes[node as usize]
    }
}

/// Index of each item among those of the same home.
fn places(homes: &[u16], partitions: usize) -> Vec<u32> {
    let mut next = vec![0; partitions];
    let place = |home: &u16| {
        let place = &mut next[usize::from(*home)];
        *place += 1;
        *place - 1
    };
    homes.iter().map(place).collect()
}
