//! Conformance test of the mock engine.

use skyhop_engine::Mock;
use skyhop_engine::conformance::check_engine;
use skyhop_scenario::parse_scenario;

#[test]
fn the_mock_conforms() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"20 ms\"\n[run]\nduration = \"3 s\"\n[[flow]]\n\
                [[flow]]\nkind = \"probe\"\n[links.more]\n[[flow]]\nvia = [\"more\"]\n\
                [[flow]]\napp = { kind = \"request-response\", response = \"10 kB\" }\n\
                [[flow]]\napp = { kind = \"constant-rate\", rate = \"64 kbit/s\" }\n";
    let scenario = parse_scenario(text, "x.toml", &[]).unwrap();
    let nowhere = |name: &str| Err(format!("unknown place {name}"));
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    check_engine(&Mock, &scenario.experiment(&nowhere, go_on).unwrap());
}
