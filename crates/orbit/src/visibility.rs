//! Visibility of satellites from sites.

use skyhop_units::{Duration, Instant};

use crate::{Ephemeris, GEOSTATIONARY_RADIUS_M, Site, Vec3};

/// Time for which the list of satellites near a site is used before all satellites are checked again.
const NEARBY_FOR: Duration = Duration::from_secs(20);

/// Condition under which a site can use a satellite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coverage {
    /// Limit of the straight-line distance.
    Range {
        /// Maximum distance in metres.
        metres: f64,
    },
    /// Limit of the elevation above the horizon.
    Elevation {
        /// Minimum elevation in degrees.
        degrees: f64,
    },
}

impl Coverage {
    /// Whether `site` can use a satellite at the position `satellite`.
    pub fn includes(self, site: &Site, satellite: Vec3) -> bool {
        match self {
            Self::Range { metres } => site.range_m(satellite) <= metres,
            Self::Elevation { degrees } => {
                site.sin_elevation(satellite) >= degrees.to_radians().sin()
            }
        }
    }

    /// Upper bound of the distance to usable satellites, in metres.
    fn largest_range_m(self, largest_radius_m: f64) -> f64 {
        // The radius is smaller than that of every site, and the elevation is reduced by the deflection of the
        // vertical between ellipsoid and sphere. Both only increase the bound.
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

/// Satellites in view of each site of a list, updated at each step.
#[derive(Debug, Clone)]
pub struct Sky {
    sites: Vec<Site>,
    coverage: Coverage,
    near_m: f64,
    near: Vec<Vec<u32>>,
    near_since: Option<Instant>,
    geo_arc: Option<GeoArc>,
}

/// Zone around the geostationary arc, as seen from each site.
#[derive(Debug, Clone)]
struct GeoArc {
    cos_avoided: f64,
    /// Directions (unit vectors) from each site to points of the arc above its horizon.
    directions: Vec<Vec<Vec3>>,
}

impl GeoArc {
    fn new(sites: &[Site], degrees: f64) -> Self {
        // With two points per degree, the distance of 18 deg to the nearest point is wrong by at most 0.01 deg.
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
    /// Create the sky over `sites` for the satellites of `ephemeris`.
    pub fn new(sites: Vec<Site>, coverage: Coverage, ephemeris: &Ephemeris) -> Self {
        let margin_m = NEARBY_FOR.as_secs_f64() * ephemeris.largest_speed_m_per_s();
        let near_m = coverage.largest_range_m(ephemeris.largest_radius_m()) + margin_m;
        let near = vec![Vec::new(); sites.len()];
        Self { sites, coverage, near_m, near, near_since: None, geo_arc: None }
    }

    /// Exclude satellites that a site sees within `degrees` of the geostationary arc, where the link of a low
    /// satellite would interfere with those of geostationary satellites.
    #[must_use]
    pub fn avoiding_geo_arc(self, degrees: f64) -> Self {
        let geo_arc = Some(GeoArc::new(&self.sites, degrees));
        Self { geo_arc, ..self }
    }

    /// Whether the site with this index can use a satellite at the position `satellite`.
    pub fn includes(&self, site: usize, satellite: Vec3) -> bool {
        let place = &self.sites[site];
        self.coverage.includes(place, satellite)
            && !self
                .geo_arc
                .as_ref()
                .is_some_and(|arc| arc.avoids(site, satellite - place.position))
    }

    /// Sites in the order given.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Whether the list of near satellites is still valid at `now`, so that [`Sky::update`] does
    /// not need positions.
    pub fn knows_near(&self, now: Instant) -> bool {
        let fresh = |since: Instant| {
            since <= now && now.saturating_since(since).as_nanos() <= NEARBY_FOR.as_nanos()
        };
        self.near_since.is_some_and(fresh)
    }

    /// Satellites near at least one of the sites: only these can come into view until the list is next updated. A
    /// satellite near several sites is repeated.
    pub fn near(&self) -> impl Iterator<Item = u32> + '_ {
        self.near.iter().flatten().copied()
    }

    /// Update the list of near satellites from all positions at `now`; must be called before [`Sky::visible`].
    pub fn update(&mut self, now: Instant, positions: &[Vec3]) {
        if self.knows_near(now) {
            return;
        }
        self.near_since = Some(now);
        let limit = self.near_m * self.near_m;
        // A satellite without a position (NaN) may get one before the next update.
        let is_far = |a: Vec3, b: Vec3| (a - b).length_squared() > limit;
        for (site, near) in self.sites.iter().zip(&mut self.near) {
            near.clear();
            let ids = (0_u32..).zip(positions);
            near.extend(
                ids.filter(|(_, position)| !is_far(**position, site.position)).map(|(id, _)| id),
            );
        }
    }

    /// Satellites in view of the site with this index, in ascending order.
    pub fn visible<'a>(
        &'a self,
        site: usize,
        positions: &'a [Vec3],
    ) -> impl Iterator<Item = u32> + 'a {
        let near = self.near[site].iter().copied();
        near.filter(move |id| self.includes(site, positions[*id as usize]))
    }
}
