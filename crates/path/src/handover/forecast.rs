//! Forecast of visibility by propagation of the orbits.

use skyhop_orbit::{Ephemeris, Sky};
use skyhop_units::{Duration, UtcInstant};

use super::VisibilityForecast;

/// Forecast from the orbits, whose ends are the sites of the sky with these indices.
pub(crate) struct OrbitForecast<'a> {
    pub(crate) ephemeris: &'a Ephemeris,
    pub(crate) sky: &'a Sky,
    pub(crate) now: UtcInstant,
}

impl VisibilityForecast for OrbitForecast<'_> {
    fn time_in_view(&self, end: usize, satellite: u32) -> Duration {
        const STRIDE: Duration = Duration::from_secs(20);
        const LONGEST: Duration = Duration::from_secs(3_600);
        const PRECISION: Duration = Duration::from_millis(10);
        let sees = |after: Duration| {
            let position = self.ephemeris.earth_fixed_of(satellite, self.now.after(after));
            self.sky.includes(end, position)
        };
        let mut seen = Duration::ZERO;
        while seen < LONGEST && sees(seen + STRIDE) {
            seen += STRIDE;
        }
        // The satellite sets between `seen` and `seen + STRIDE`: bisect.
        let mut unseen = seen + STRIDE;
        while seen < LONGEST && unseen - seen > PRECISION {
            let middle = seen + (unseen - seen) / 2;
            *(if sees(middle) { &mut seen } else { &mut unseen }) = middle;
        }
        seen
    }
}
