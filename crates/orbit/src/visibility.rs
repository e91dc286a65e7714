//! Which satellites a site sees.

use skyhop_units::{Duration, Instant};

use crate::{Ephemeris, GEOSTATIONARY_RADIUS_M, Site, Vec3};

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
    geo_arc: Option<GeoArc>,
}

/// The part of the sky around the geostationary arc, as each site sees it.
#[derive(Debug, Clone)]
struct GeoArc {
    cos_avoided: f64,
    /// For each site the directions of points of the arc above its horizon, of length one.
    directions: Vec<Vec<Vec3>>,
}

impl GeoArc {
    fn new(sites: &[Site], degrees: f64) -> Self {
        // Two points to a degree: at 18 deg from the arc, the nearest is off by 0.01 deg at most.
        let arc = (0..720).map(|half_deg| {
            let (sin, cos) = (f64::from(half_deg) / 2.0).to_radians().sin_cos();
            Vec3::new(cos, sin, 0.0) * GEOSTATIONARY_RADIUS_M
        });
        let seen_from = |site: &Site| -> Vec<Vec3> {
            let sights = arc.clone().map(|point| point - site.position);
            let above = sights.filter(|sight| sight.dot(site.up) > 0.0);
            above.map(|sight| sight * (1.0 / sight.length())).collect()
        };
        let directions = sites.iter().map(seen_from).collect();
        Self { cos_avoided: degrees.to_radians().cos(), directions }
    }

    fn avoids(&self, site: usize, sight: Vec3) -> bool {
        let limit = self.cos_avoided * sight.length();
        self.directions[site].iter().any(|direction| direction.dot(sight) > limit)
    }
}

impl Sky {
    /// The sky over `sites` for satellites that move as `ephemeris` says.
    pub fn new(sites: Vec<Site>, coverage: Coverage, ephemeris: &Ephemeris) -> Self {
        let margin_m = NEARBY_FOR.as_secs_f64() * ephemeris.largest_speed_m_per_s();
        let near_m = coverage.largest_range_m(ephemeris.largest_radius_m()) + margin_m;
        let near = vec![Vec::new(); sites.len()];
        Self { sites, coverage, near_m, near, near_since: None, geo_arc: None }
    }

    /// The same without the satellites that a site sees within so many degrees of the geostationary
    /// arc: there a low satellite would disturb the links of geostationary ones.
    #[must_use]
    pub fn avoiding_geo_arc(self, degrees: f64) -> Self {
        let geo_arc = Some(GeoArc::new(&self.sites, degrees));
        Self { geo_arc, ..self }
    }

    /// Whether the site with this index and a satellite can use each other.
    pub fn includes(&self, site: usize, satellite: Vec3) -> bool {
        let place = &self.sites[site];
        self.coverage.includes(place, satellite)
            && !self
                .geo_arc
                .as_ref()
                .is_some_and(|arc| arc.avoids(site, satellite - place.position))
    }

    /// The sites, in the order given.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Whether [`Sky::update`] at `now` needs no positions: the satellites near the sites are known.
    pub fn knows_near(&self, now: Instant) -> bool {
        let fresh = |since: Instant| {
            since <= now && now.saturating_since(since).as_nanos() <= NEARBY_FOR.as_nanos()
        };
        self.near_since.is_some_and(fresh)
    }

    /// The satellites near any of the sites, of which alone they may see some until they are looked for again; one
    /// near several sites comes several times.
    pub fn near(&self) -> impl Iterator<Item = u32> + '_ {
        self.near.iter().flatten().copied()
    }

    /// Takes note of the satellites' positions at `now`; to be called before [`Sky::visible`].
    pub fn update(&mut self, now: Instant, positions: &[Vec3]) {
        if self.knows_near(now) {
            return;
        }
        self.near_since = Some(now);
        let limit = self.near_m * self.near_m;
        for (site, near) in self.sites.iter().zip(&mut self.near) {
            near.clear();
            let ids = (0_u32..).zip(positions);
            near.extend(
                ids.filter(|(_, position)| (**position - site.position).length_squared() <= limit)
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
        let near = self.near[site].iter().copied();
        near.filter(move |id| self.includes(site, positions[*id as usize]))
    }
}
