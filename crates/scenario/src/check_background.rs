//! Checks of the keys of `[network.background]`.

use crate::ScenarioError;
use crate::named::NamedScenario;
use crate::types::BackgroundSection;

/// Smallest and largest size of an IP packet with a UDP header.
const PACKET_BYTES: [u64; 2] = [28, 65_535];
const MOST_BURST: u32 = 1_000;

impl NamedScenario {
    /// Check the keys of a background as far as they tell; its file is read when the network is planned.
    pub(crate) fn check_background(
        &self,
        background: &BackgroundSection,
    ) -> Result<(), ScenarioError> {
        let common = &background.common;
        let wrong =
            |key: &str, what| Err(self.key_error(format!("network.background.{key}"), what));
        if !(f64::EPSILON..1.0).contains(&common.most.fraction()) {
            let what = format!("is {}; expected above 0 % and below 100 %", common.most);
            return wrong("most", what);
        }
        let [least, largest] = PACKET_BYTES;
        if !(least..=largest).contains(&common.packet.as_u64()) {
            return wrong(
                "packet",
                format!("is {}; expected {least} to {largest} bytes", common.packet),
            );
        }
        if common.burst > MOST_BURST {
            return wrong("burst", format!("is {}; expected 0 to {MOST_BURST}", common.burst));
        }
        Ok(())
    }
}
