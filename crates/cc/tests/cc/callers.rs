//! Refusal of modules that rely on hooks or features that an engine does not have.

use skyhop_cc::{Announcements, Caller, CcError, Controller, Instance, Module, Registry, Setup};

use crate::every_module::{EVERYTHING, with_fixed_window};

#[test]
fn the_hooks_of_a_module_are_those_that_its_file_defines() {
    let hooks = |module: &'static Module| module.hooks().collect::<Vec<_>>();
    assert_eq!(hooks(Module::find("reno").unwrap()), ["ssthresh", "cong_avoid", "undo_cwnd"]);
    let info = ["ssthresh", "cong_avoid", "undo_cwnd", "get_info"];
    assert_eq!(hooks(Module::fixture("info")), info);
    assert!(Module::fixture("marks").needs_ecn());
    assert!(!Module::all().iter().any(Module::needs_ecn));
}

#[test]
fn a_hook_that_is_never_called_is_refused_by_its_name() {
    let refused = EVERYTHING.accept(Module::fixture("info")).unwrap_err().to_string();
    assert_eq!(
        refused,
        "cc/info.c defines get_info, which every TCP never calls: leave it out, or run it where it is called"
    );
    let caller = Caller { calls: &["ssthresh", "cong_avoid", "undo_cwnd"], ..EVERYTHING };
    assert_eq!(caller.accept(Module::find("reno").unwrap()), Ok(()));
    let hook = |name| match caller.accept(Module::find(name).unwrap()) {
        Err(CcError::UncalledHook { hook, .. }) => hook,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!((hook("cubic"), hook("hybla")), ("set_state", "set_state"));
    let started = Registry::new().start("skyhop:bbr", &Setup::default(), &caller);
    assert!(matches!(started, Err(CcError::UncalledHook { .. })));
}

#[test]
fn who_needs_ecn_is_refused_where_there_is_none() {
    let without = Caller { name: "this TCP", has_ecn: false, ..EVERYTHING };
    assert_eq!(EVERYTHING.accept(Module::fixture("marks")), Ok(()));
    let refused = without.accept(Module::fixture("marks")).unwrap_err().to_string();
    assert_eq!(
        refused,
        "marks needs ECN (TCP_CONG_NEEDS_ECN), which this TCP does not have: run it where there is ECN"
    );
}

#[test]
fn a_registered_controller_is_found_beside_the_modules() {
    let registry = with_fixed_window();
    assert_eq!(registry.names().len(), Module::all().len() + 1);
    let start =
        |name, params| registry.start(name, &Setup { params, ..Setup::default() }, &EVERYTHING);
    for name in ["fixed", "skyhop:fixed", "cubic", "skyhop:cubic"] {
        assert!(start(name, &[]).is_ok(), "{name}");
    }
    assert!(format!("{:?}", start("fixed", &[("packets", "7")]).unwrap()).contains('7'));
    assert!(matches!(start("fixed", &[("window", "7")]), Err(CcError::UnknownParam { .. })));
    assert!(matches!(start("fixed", &[("packets", "0")]), Err(CcError::BadValue { .. })));
    let unknown = start("fixd", &[]).unwrap_err().to_string();
    assert!(unknown.contains("cubic, fixed, hybla"), "{unknown}");
}

#[test]
fn a_name_is_registered_once() {
    let registry = with_fixed_window();
    let reno = |setup: &Setup<'_>| {
        let reno = Instance::with_setup(Module::find("reno")?, setup)?;
        Ok(Box::new(reno) as Controller)
    };
    for name in ["fixed", "reno"] {
        let taken = registry.register(name, reno);
        assert_eq!(taken, Err(CcError::NameTaken { name: name.to_owned() }));
    }
}

#[test]
fn a_file_of_the_users_may_be_adopted_again_and_has_no_name() {
    let registry = Registry::new();
    let reno = |setup: &Setup<'_>| -> Result<Controller, CcError> {
        Ok(Box::new(Instance::with_setup(Module::find("reno")?, setup)?))
    };
    let none = |_: &[(&str, &str)]| Announcements::default();
    registry.adopt("/here/idea.py", none, |_| Err(CcError::File { what: "was broken".to_owned() }));
    let start = |file| registry.start(file, &Setup::default(), &EVERYTHING);
    assert_eq!(start("/here/idea.py").unwrap_err().to_string(), "was broken");
    registry.adopt("/here/idea.py", none, reno);
    assert!(start("/here/idea.py").is_ok());
    assert_eq!(registry.names().len(), Module::all().len());
    let absent = start("/here/other.c").unwrap_err();
    assert_eq!(absent, CcError::NotLoaded { file: "/here/other.c".to_owned() });
}
