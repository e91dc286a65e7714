//! Which satellites a site sees.

use skyhop_units::{Duration, Instant};

use crate::{Ephemeris, Site, Vec3};

/// How long the satellites near a site are remembered before all are looked at again.
const NEARBY_FOR: Duration = Duration::from_secs(20);

/// When a satellite and a site can use each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coverage {
    /// The straight distance is at most this many metres.
    Range {
        /// The limit.
        metres: f64,
    },
    /// The satellite stands at least this many degrees above the horizon.
    Elevation {
        /// The limit.
        degrees: f64,
    },
}

impl Coverage {
    /// Whether `site` and `satellite` can use each other.
    pub fn includes(self, site: &Site, satellite: Vec3) -> bool {
        match self {
            Self::Range { metres } => site.range_m(satellite) <= metres,
            Self::Elevation { degrees } => {
                site.sin_elevation(satellite) >= degrees.to_radians().sin()
            }
        }
    }

    /// A distance beyond which nothing is included.
    fn largest_range_m(self, largest_radius_m: f64) -> f64 {
        // Below every site, and a little less than the elevation above the sphere's own horizon:
        // both only make the bound larger.
        const SMALLEST_RADIUS_M: f64 = 6.34e6;
        const VERTICAL_DEFLECTION_DEG: f64 = 0.25;
        match self {
            Self::Range { metres } => metres,
            Self::Elevation { degrees } => {
                let (sin, cos) = (degrees - VERTICAL_DEFLECTION_DEG).to_radians().sin_cos();
                let foot = SMALLEST_RADIUS_M * cos;
                (largest_radius_m.powi(2) - foot * foot).sqrt() - SMALLEST_RADIUS_M * sin
            }
        }
    }
}

/// The satellites above a list of sites, found again at each step.
#[derive(Debug, Clone)]
pub struct Sky {
    sites: Vec<Site>,
    coverage: Coverage,
    near_m: f64,
    near: Vec<Vec<u32>>,
    near_since: Option<Instant>,
}

impl Sky {
    /// The sky over `sites` for satellites that move as `ephemeris` says.
    pub fn new(sites: Vec<Site>, coverage: Coverage, ephemeris: &Ephemeris) -> Self {
        let margin_m = NEARBY_FOR.as_secs_f64() * ephemeris.largest_speed_m_per_s();
        let near_m = coverage.largest_range_m(ephemeris.largest_radius_m()) + margin_m;
        let near = vec![Vec::new(); sites.len()];
        Self { sites, coverage, near_m, near, near_since: None }
    }

    /// The sites, in the order given.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Takes note of the satellites' positions at `now`; to be called before [`Sky::visible`].
    pub fn update(&mut self, now: Instant, positions: &[Vec3]) {
        let fresh = |since: Instant| {
            since <= now && now.saturating_since(since).as_nanos() <= NEARBY_FOR.as_nanos()
        };
        if self.near_since.is_some_and(fresh) {
            return;
        }
        self.near_since = Some(now);
        let limit = self.near_m * self.near_m;
        for (site, near) in self.sites.iter().zip(&mut self.near) {
            near.clear();
            let ids = (0_u32..).zip(positions);
            near.extend(
                ids.filter(|(_, position)| (**position - site.position).norm_squared() <= limit)
                    .map(|(id, _)| id),
            );
        }
    }

    /// The satellites that the site with this index sees, in ascending order.
    pub fn visible<'a>(
        &'a self,
        site: usize,
        positions: &'a [Vec3],
    ) -> impl Iterator<Item = u32> + 'a {
        let (place, coverage) = (&self.sites[site], self.coverage);
        let near = self.near[site].iter().copied();
        near.filter(move |id| coverage.includes(place, positions[*id as usize]))
    }
}
