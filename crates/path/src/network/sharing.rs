//! Shares of demands that go over links with limited room.

/// A demand on its route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Routed<'r> {
    /// Rate that the demand asks for, in bit/s.
    pub(super) rate_bps: f64,
    /// Indices of the links of its route, each once.
    pub(super) legs: &'r [u32],
}

/// Share of its rate that each demand gets, 0 to 1, given the room of each link in bit/s.
///
/// All shares grow together, and each stops when a link of its route is full or at 1. The shares are max-min fair: none
/// could be larger without a smaller one becoming smaller.
pub(super) fn shares(demands: &[Routed<'_>], room_bps: &[f64]) -> Vec<f64> {
    let mut links = vec![Filling::default(); room_bps.len()];
    for demand in demands {
        for leg in demand.legs {
            links[*leg as usize].growing_bps += demand.rate_bps;
            links[*leg as usize].growing += 1;
        }
    }
    let mut shares = vec![1.0; demands.len()];
    if links.iter().zip(room_bps).all(|(link, room)| link.growing_bps <= *room) {
        return shares;
    }
    let over = demands_over(demands, room_bps.len());
    let mut is_growing = vec![true; demands.len()];
    while let Some((full, share)) = next_full(&links, room_bps) {
        for number in &over[full] {
            let number = *number as usize;
            if std::mem::take(&mut is_growing[number]) {
                shares[number] = share;
                let Routed { rate_bps, legs } = demands[number];
                legs.iter().for_each(|leg| links[*leg as usize].stop(rate_bps, share));
            }
        }
    }
    shares
}

/// Load of a link while shares grow.
#[derive(Debug, Clone, Copy, Default)]
struct Filling {
    /// Load of the demands whose shares have stopped, in bit/s.
    stopped_bps: f64,
    /// Rates of the demands whose shares grow, in bit/s.
    growing_bps: f64,
    /// Number of demands whose shares grow.
    growing: u32,
}

impl Filling {
    /// Let a demand's share stop.
    fn stop(&mut self, rate_bps: f64, share: f64) {
        self.stopped_bps += share * rate_bps;
        self.growing_bps -= rate_bps;
        self.growing -= 1;
    }
}

/// The link that is full first, and the share at which it is; `None` if no link is full at a share of 1.
fn next_full(links: &[Filling], room_bps: &[f64]) -> Option<(usize, f64)> {
    let filling = links.iter().zip(room_bps).enumerate().filter(|(_, (link, _))| link.growing > 0);
    let share = |(number, (link, room)): (usize, (&Filling, &f64))| {
        (number, (room - link.stopped_bps).max(0.0) / link.growing_bps)
    };
    filling.map(share).filter(|(_, share)| *share < 1.0).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Numbers of the demands that go over each link.
fn demands_over(demands: &[Routed<'_>], links: usize) -> Vec<Vec<u32>> {
    let mut over = vec![Vec::new(); links];
    for (number, demand) in (0..).zip(demands) {
        demand.legs.iter().for_each(|leg| over[*leg as usize].push(number));
    }
    over
}
