//! Policies at a zone's names: where they may be, and how they come and go.

use dns::{Folded, Rtype};

use super::read::shown;
use super::{Node, PolicyId, Walk, Zone};
use crate::names::NameHash;

/// Records that keep a policy from deciding a name.
#[derive(Debug)]
pub struct Hindrance {
    /// The name that has them, in folded wire form.
    pub owner: Box<[u8]>,
    /// Their type.
    pub rtype: Rtype,
    /// What is wrong, as in a fault.
    pub what: String,
}

impl Zone {
    /// Whether a policy may decide the addresses at a name, or what it is an alias of.
    ///
    /// It needs our authority (no delegation or DNAME above, none at it), and no CNAME beside it. An alias has nothing
    /// beside it (RFC 1034 §3.6.2). Whether it can be signed is another question ([`crate::signing`]).
    ///
    /// # Errors
    /// What is in its way.
    pub fn may_steer(&self, name: &Folded, is_alias: bool, hash: &NameHash) -> Result<(), Hindrance> {
        let (shown, origin) = (shown(name.wire()), shown(self.origin.wire()));
        let hindered = |owner: &[u8], rtype, what| Err(Hindrance { owner: owner.into(), rtype, what });
        match self.walk(name, hash) {
            Walk::Delegation(_, labels) => {
                let what = format!("{shown} is at or below a delegation in {origin}");
                hindered(name.suffix(labels), Rtype::NS, what)
            }
            Walk::Dname(_, labels) => {
                let what = format!("{shown} is below a DNAME record in {origin}");
                hindered(name.suffix(labels), Rtype::DNAME, what)
            }
            Walk::Name(found) if found.rrset(Rtype::CNAME).is_some() => {
                hindered(name.wire(), Rtype::CNAME, format!("{shown} has a CNAME record"))
            }
            Walk::Name(found) if is_alias => match found.rrsets().find(|set| !self.has_made(set.rtype)) {
                Some(set) => {
                    let what =
                        format!("{shown} has records of type {}, beside which no alias can be", set.rtype);
                    hindered(name.wire(), set.rtype, what)
                }
                None => Ok(()),
            },
            Walk::Name(_) | Walk::Missing(_, _) => Ok(()),
        }
    }

    /// The policy at exactly this name.
    pub fn policy_at(&self, name: &Folded, hash: &NameHash) -> Option<PolicyId> {
        self.names.find(hash.of(name), name.wire())?.value.policy
    }

    /// Sets or takes away the policy at a name at or below the apex; the name comes and goes with it where it
    /// has nothing else.
    pub fn set_policy(&mut self, name: &Folded, policy: Option<PolicyId>, hash: &NameHash) {
        if policy.is_some() {
            self.ensure(name, hash);
        }
        let change = |node: &mut Node, _: &mut Vec<u8>| std::mem::replace(&mut node.policy, policy).is_some();
        if let Some(was_steered) = self.names.change(hash.of(name), name.wire(), change) {
            self.steered = self.steered + usize::from(policy.is_some()) - usize::from(was_steered);
        }
        if policy.is_none() {
            self.prune(name, hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HEAD, build, name};
    use super::*;

    #[test]
    fn a_policys_name_comes_and_goes_with_it() {
        let text = format!("{HEAD}c CNAME ns\nsub NS ns\nd DNAME x\nt TXT x\n");
        let mut zone = build(&text);
        let hash = NameHash::new(1);
        for (bad, why) in [
            ("c.example", "CNAME"),
            ("sub.example", "delegation"),
            ("a.sub.example", "delegation"),
            ("a.d.example", "DNAME"),
        ] {
            assert!(zone.may_steer(&name(bad), false, &hash).unwrap_err().what.contains(why), "{bad}");
        }
        let beside = zone.may_steer(&name("t.example"), true, &hash).unwrap_err();
        assert!(beside.what.contains("type TXT, beside which no alias can be"), "{}", beside.what);
        zone.may_steer(&name("www.example"), true, &hash).unwrap();
        let before = zone.to_text();
        let (deep, wild) = (name("a.b.ns.example"), name("*.w.example"));
        for steered in [&deep, &wild] {
            zone.may_steer(steered, false, &hash).unwrap();
            zone.set_policy(steered, PolicyId::new(9), &hash);
            assert_eq!(zone.policy_at(steered, &hash), PolicyId::new(9));
        }
        assert!(matches!(zone.walk(&name("b.ns.example"), &hash), Walk::Name(_)), "an empty non-terminal");
        let under = name("x.w.example");
        let Walk::Missing(encloser, labels) = zone.walk(&under, &hash) else { panic!("x.w is missing") };
        assert!(zone.wildcard(encloser, &under, labels, &hash).unwrap().policy().is_some());
        for steered in [&deep, &wild] {
            zone.set_policy(steered, None, &hash);
        }
        assert_eq!(zone.names.len(), build(&text).names.len());
        assert_eq!(zone.to_text(), before);
    }
}
