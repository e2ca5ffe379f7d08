//! Commits of nothing but new entries of a policy, which are written over the ones that are there.

use api::Policy;

use super::faults::stranger;
use super::{Folder, found, open, policy, refused, region, zone};
use crate::embedded::Embedded;
use crate::{Change, CommitError};

/// A store whose connection knows the policy that is returned, at generation 2.
async fn known(folder: &Folder) -> (Embedded, Policy) {
    let store = open(folder);
    let policy = policy(&["www.", "a."], &["europe"]);
    store.commit(0, &[region(1, "europe")]).await.unwrap();
    store.commit(1, &[put(&policy)]).await.unwrap();
    (store, policy)
}

fn put(policy: &Policy) -> Change {
    Change::PutPolicy(policy.clone().into())
}

#[tokio::test]
async fn they_are_numbered_described_and_in_conflict_as_all_others() {
    let folder = Folder::new();
    let (store, mut policy) = known(&folder).await;
    policy.servers[0].default.ttl = Some(3);
    for based_on in [0, 1, 3, u64::MAX] {
        let result = store.commit(based_on, &[put(&policy)]).await;
        assert_eq!(result, Err(CommitError::Conflict { current: 2 }), "{based_on}");
    }
    for generation in 2..5 {
        policy.servers[0].default.ttl = Some(generation);
        policy.servers[0].regions.values_mut().for_each(|entry| entry.probability = Some(generation.into()));
        let result = store.commit(generation.into(), &[put(&policy)]).await;
        assert_eq!(result, Ok(u64::from(generation) + 1));
        assert_eq!(store.load().await.unwrap().policies, [policy.clone()]);
    }
    let what: Vec<String> = found(&store, "SELECT what FROM generation WHERE number > 1 AND at > 0").await;
    assert_eq!(what, ["policy www. put"; 4]);
}

#[tokio::test]
async fn what_no_table_holds_is_refused_as_ever() {
    let folder = Folder::new();
    let (store, good) = known(&folder).await;
    type Spoil = fn(&mut Policy);
    let checks: [(Spoil, &str); 4] = [
        (|p| p.servers[1].default.ttl = Some(1 << 31), "policy_server_ttl_is_from_0_to_2147483647"),
        (|p| p.servers[0].default.probability = Some(f64::NAN), "a probability of NaN"),
        (|p| p.servers[0].default.probability = Some(-1.0), "probability_is_finite_and_from_0"),
        (
            |p| p.servers[0].regions.values_mut().for_each(|entry| entry.ttl = Some(u32::MAX)),
            "policy_row_ttl_is_from_0_to_2147483647",
        ),
    ];
    let mut generation = 2;
    for (spoil, words) in checks {
        let mut bad = good.clone();
        spoil(&mut bad);
        // It is known before each: what is refused is forgotten.
        generation = store.commit(generation, &[put(&good)]).await.unwrap();
        let told = refused(store.commit(generation, &[put(&bad)]).await);
        assert!(told.0 == 0 && told.1.contains(words), "{told:?}");
        generation = store.commit(generation, &[put(&good)]).await.unwrap();
        let told = refused(store.commit(generation, &[zone("z.", ""), put(&bad)]).await);
        assert!(told.0 == 1 && told.1.contains(words), "{told:?}");
        assert_eq!(store.load().await.unwrap().policies, std::slice::from_ref(&good));
    }
}

#[tokio::test]
async fn what_was_changed_behind_the_stores_back_is_stored_all_the_same() {
    let folder = Folder::new();
    let (store, mut policy) = known(&folder).await;
    let mut generation = 2;
    for damage in ["DELETE FROM policy", "DELETE FROM policy_server", "DELETE FROM policy_row"] {
        for others in [&[][..], &[zone("z.", "")]] {
            stranger(&folder.database()).execute_batch(damage).unwrap();
            policy.servers[0].regions.values_mut().for_each(|entry| entry.ttl = Some(generation as u32));
            let changes = [others, &[put(&policy)]].concat();
            generation = store.commit(generation, &changes).await.unwrap();
            assert_eq!(store.load().await.unwrap().policies, [policy.clone()], "{damage}");
        }
    }
}
