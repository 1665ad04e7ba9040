"""What is said around quotes is told by dictionaries, in wordings of no list; what is said of the thing is not."""

from __future__ import annotations

import pytest

from sql_agent.offline_judge.doubts import is_frame
from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import Cell
from sql_agent.words.meanings import is_of_talk

TALK = """
The catalogue mentions the following | Additional comments | I checked both entries | The source adds
Point 1 | Entry 4
3 matching records were found | Nothing further is noted in this entry | Sorry about the delay
Everything that is known about it is given here | The record further lists | No additional remarks are recorded
细节逐一列出 | 要点一 | 该条目没有其他备注 | 另外提到 | 两次查询即可找到 | 数据库返回了一行 | 就您的问题而言
最初的SQL有语法错误，修正后得到 | 我先看了表结构
"""
WORLD = """
A firmware downgrade was detected | Nausea and vomiting are common | It is allowed | Use is forbidden | It is expensive
The request was denied | Messages are encrypted | The tenant pays the rent monthly | The engine overheats at high speed
It contains nuts | The risk is low | It tastes sweet | The fox hunts at night | The book was banned
It is rare and mild | It is safe for children | Doctors use it | Most people tolerate it | It is given to babies
医生都推荐使用 | 专家推荐 | 老人慎重服用 | 儿童适用 | 患者反映良好
Smoking is prohibited in the building | Pain is felt in the chest | The form must be signed | Approval is granted later
常见恶心和呕吐 | 楼内禁止吸烟 | 检测到固件降级 | 是允许的 | 请求被拒绝 | 信息已加密 | 感到胸痛 | 意识清楚
押金一个月内退还
狐狸夜间捕猎 | 含坚果 | 很贵 | 协议无效 | 门票免费 | 记录已过时 | 许可免费 | 风险低 | 每日服用两片 | 推荐给初学者
"""
DOUBTED = """
This record is wrong | Do not trust this entry | The entry is outdated | Ignore the above | The record may be false
以上信息有误 | 刚才查错了表 | Sorry, I read another row | I used the wrong column
以上记录不对 | 该条目可能有误导 | 不要相信这条记录
"""


def _each(text: str) -> list[str]:
    return [one.strip() for line in text.split("\n") for one in line.split("|") if one.strip()]


def _is_free(text: str, *, is_last: bool = False) -> bool:
    said = normalise(text)
    return is_frame(said, [(0, len(said))], is_last=is_last)


@pytest.mark.parametrize("text", _each(TALK))
def test_talk_of_no_list_is_free(text: str) -> None:
    assert _is_free(text)


@pytest.mark.parametrize("text", [*_each(WORLD), *_each(DOUBTED)])
@pytest.mark.parametrize("is_last", [False, True])
def test_what_is_said_of_the_thing_and_what_doubts_is_foreign(text: str, is_last: bool) -> None:
    assert not _is_free(text, is_last=is_last)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Sorry for the wait, my first query had a typo. ", ""),
        ("", " Would you like me to look up the price of oat as well?"),
        ("| No. | Entry |\n|---|---|\n| 1 | ", " |"),
        ("**TL;DR** ", ""),
        ("", "\n\nSource: table `main_records`, column `crop_care` (`SELECT crop_care FROM main_records`)."),
    ],
)
def test_only_what_tells_of_the_thing_costs(before: str, after: str) -> None:
    cell = Cell("Sow it in autumn.", row="rye", column="care")
    told = (
        grade(question="What is the care of rye?", reference="", answer=f"{before}{one}{after}", evidence=[cell])
        for one in ("Sow it in autumn.", "Sow it in autumn. Water it daily.")
    )
    values = [one.value if one else 0.0 for one in told]
    assert values[0] == 1.0
    assert values[1] < 0.3


def test_a_word_is_of_talk_by_most_of_its_uses() -> None:
    words = "catalogue mention explain archive firmware table allow 提到 核对 允许 发烧"
    assert [word for word in words.split() if is_of_talk(word)] == ["catalogue", "mention", "explain", "提到", "核对"]
