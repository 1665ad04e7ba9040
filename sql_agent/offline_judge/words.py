"""What an answer may put around the facts at no cost: words that carry nothing by themselves, in any sequence.

Guarantees: no entry denies, doubts, permits or forbids, and none names a drug, a disease or a number. `RELATIONS` count
only where the question asks for that one kind of thing. What else is free says exam.py.
"""

from __future__ import annotations

from sql_agent.offline_judge.normal import normalise

PHRASES = """
您好 你好 谢谢 答 答案 回答 根据 提供 参考 经 查询 检索 查 查到 结果 显示 数据库 记录 记载 据记载 资料 原文 写有 写着
写到 写道 如下 以下 中 以上 就是 全部内容 希望对您有帮助 希望对你有帮助 希望以上信息对您有帮助 希望这些信息对您有帮助
如果还想知道别的 如果您还有其他问题 如果还有其他问题 如有其他问题 如需更多信息 如需了解更多 如有疑问 如有任何疑问
请告诉我 请随时提问 随时告诉我 请随时告诉我 欢迎随时提问 总结 总之
综上 综上所述 首先 其次 第1 第2 第3 和 与 及 以及 还有 同时 另外 此外 其中 分别 依次 包括 包含 含 有
是 为 的 也 都 均 则 而 其 它 等 既 即 该 本 这种 药 药品 药物 疾病 该病 本品 患者 病人 者 人群 名称 字段 内容 序号 编号
项目 方法 方面 共 共计 1共 总共 合计 总数 数量 种 个 款 项 条 类 主要 从而 并 并且 而且 且 采用 由 对比 具体 有关
因为 所以 因此 典型 具有 具备 症见 表现为 while whereas respectively in_addition by_contrast
also furthermore moreover besides additionally drug medicine disease condition patient patients
the answer is are and of include includes hello according to database in it name field value item content details
"""
RELATIONS = [  # how a question asks for one kind of thing, and how a sentence says it
    ("适应|适用|用途|主治|用于(?!.*[岁剂量])|目的", "可 用于 适用于 治疗 适应症"),
    ("不良反应|副作用|副反应|不适反应", "可 会 引起 出现 可能引起 可能出现 可能会 可能的 不良反应 副作用"),
    ("剂量|用量|用法|怎么?样?[吃服用]|如何[吃服用]", "用法用量 用法 用量 剂量 服用"),
    ("禁", "禁用 忌用 禁忌 禁用于"),
    ("表现|症状", "表现 症状 常见"),
    ("治疗|救治|处理", "可采用 治疗"),
    ("鉴别|区分|混淆", "需 需要 相鉴别 鉴别"),
    (r"\b(?:indicat|used? for\b|uses?\b)", "used_for mainly_used_for indicated_for used_to_treat"),
    (
        r"\b(?:dos(?:e|age|ing)|how (?:is|are|should|do|does|often|much) .*(?:given|taken?|used?|appl(?:y|ied)))\b",
        "dosage dose given take taken",
    ),
    (r"\b(?:side.?effect|adverse)", "may_cause can_cause possible"),
    (r"\b(?:treat|therap)", "treated_with managed_with"),
    (r"\b(?:symptom|sign\b|signs\b)", "people_with may_have presents_with"),
    (r"\bfeature", "offers supports provides"),
]


def phrases(text: str) -> list[str]:
    """The phrases of a list in normal form, whose words are joined by a low line."""
    return [normalise(phrase.replace("_", " ")) for phrase in text.split()]
