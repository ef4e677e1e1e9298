"""Names of classes of tasks."""

from hypothesis import strategies as st

from schemas.placement_rules import class_key
from tests.strategies import for_all

demands = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "disk_io", "a.b-c"]), st.integers(0, 1 << 62))
labels = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)


@for_all(demands, labels, labels, st.integers(0, 9))
def test_a_class_has_one_name_in_whatever_order_it_is_written(demand, required, preferred, gang):
    """The name is in records and sorts them, so it stays as it has been: as Python writes these lists."""
    as_lists = [sorted(each.items()) for each in (demand, required, preferred)]

    assert class_key(demand, required, preferred, gang) == "".join(map(str, [*as_lists, gang]))
    turned = [dict(reversed(each.items())) for each in (demand, required, preferred)]
    assert class_key(*turned, gang) == class_key(demand, required, preferred, gang)


@for_all(demands, demands, labels, labels)
def test_other_classes_have_other_names(demand, other, required, preferred):
    assert (class_key(demand, required, preferred, 0) == class_key(other, required, preferred, 0)) == (demand == other)
    assert (class_key(demand, required, {}, 0) == class_key(demand, {}, required, 0)) == (not required)
    assert class_key(demand, required, preferred, 0) != class_key(demand, required, preferred, 2)
